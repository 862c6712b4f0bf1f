"""PyTorch's input pipeline: a DataLoader with worker processes; pictures by Pillow and torchvision, as its users write it.

Workers are as many as the cell's threads, and stay from run to run (persistent_workers), with PyTorch's own number of
batches made ahead."""
import torch
from torch.utils.data import DataLoader, Dataset

import frame


class Pictures(Dataset):
    """Sample p of a run: (tensor (3, height, width), label)."""

    def __init__(self, images, seed, training):
        try:
            from PIL import Image
            from torchvision.transforms import functional
        except ImportError as error:
            raise frame.Declined("images", "images: PyTorch's pipeline needs torchvision and Pillow; got: %s. Run "
                                 "'tandem lab setup pytorch' again, which installs them." % error)
        self.open, self.bilinear, self.functional = Image.open, Image.Resampling.BILINEAR, functional
        self.images, self.seed, self.training = images, seed, training

    def __getitem__(self, position):
        images, functional = self.images, self.functional
        place = position % len(images.paths)
        with self.open(images.paths[place]) as file:
            picture = functional.resize(file.convert("RGB"), images.resize)
        width, height = picture.size
        if self.training:
            top, left, mirrored = frame.cut_of(frame.drawn(position, self.seed)[0], height, width, images)
        else:
            top, left, mirrored = frame.middle_of(height, width, images)
        picture = functional.crop(picture, top, left, images.height, images.width)
        if mirrored:
            picture = functional.hflip(picture)
        return functional.normalize(functional.to_tensor(picture), images.mean, images.std), images.labels[place]


class Rows(Dataset):
    """Sample p of arrays in memory."""

    def __init__(self, data):
        self.tensors = [torch.from_numpy(array.copy()) for array in data.arrays.values()]

    def __getitem__(self, position):
        return tuple(tensor[position % len(tensor)] for tensor in self.tensors)


class Batches:
    """The positions of each batch, as the DataLoader asks for them; their number is that of the run."""

    def __init__(self, size):
        self.size, self.count = size, 0

    def __len__(self):
        return self.count

    def __iter__(self):
        return (range(index * self.size, (index + 1) * self.size) for index in range(self.count))


class PyTorchPipeline(frame.Pipeline):
    def __init__(self, cell, model):
        self.cell, self.model = cell, model
        self.device = torch.device(cell.device)
        torch.set_num_threads(cell.threads)
        if cell.images is not None:
            samples = Pictures(cell.images, cell.seed, True)
            self.names = [cell.network.inputs[0]["name"], cell.loss.target]
        else:
            samples = Rows(cell.samples())
            self.names = list(cell.samples().arrays)
        self.batches = Batches(cell.batch)
        self.loader = DataLoader(samples, batch_sampler=self.batches, num_workers=cell.threads,
                                 persistent_workers=True, pin_memory=self.device.type == "cuda",
                                 multiprocessing_context="fork")

    def first(self):
        samples = Pictures(self.cell.images, self.cell.seed, False)
        return torch.stack([samples[position][0] for position in range(self.cell.batch)]).numpy()

    def begin(self, batches):
        self.batches.count = batches
        self.iterator = iter(self.loader)

    def next(self):
        self.last = dict(zip(self.names, next(self.iterator)))
        if self.model is not None:
            return self.model.placed(self.last)
        return [tensor.to(self.device, non_blocking=True) for tensor in self.last.values()]

    def read(self, placed):
        return {name: tensor.numpy() for name, tensor in self.last.items()}

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
