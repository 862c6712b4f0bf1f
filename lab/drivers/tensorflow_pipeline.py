"""TensorFlow's input pipeline: tf.data with its own operations for files, JPEG and resizing.

As many calls run beside each other as the cell has threads. Pictures are decoded with the accurate transform and resized
with antialiasing, which tf.image leaves off by default: without them the samples would be others."""
import numpy as np
import tensorflow as tf

import frame
import tensorflow_process as process


class TensorFlowPipeline(frame.Pipeline):
    def __init__(self, cell, model):
        self.cell, self.model = cell, model
        if cell.images is not None:
            self.names = [cell.network.inputs[0]["name"], cell.loss.target]
            self.paths = tf.constant(cell.images.paths)
            self.labels = tf.constant(np.asarray(cell.images.labels, dtype=np.int64))
        else:
            orders = dict(model.inputs + model.targets)
            self.names = list(orders)
            self.rows = [tf.constant(process.stored(cell, np.asarray(cell.samples().arrays[name]), order))
                         for name, order in orders.items()]
        self.kind = tf.float64 if cell.precision == "f64" else tf.float32

    def _picture(self, place, numbers):
        """One sample, (height, width, 3) in the order of the network's axes, and its label. numbers: of frame.drawn; None:
        the middle."""
        images = self.cell.images
        picture = tf.io.decode_jpeg(tf.io.read_file(self.paths[place]), channels=3, dct_method="INTEGER_ACCURATE")
        sizes = tf.shape(picture)[:2]
        wide = tf.cast(sizes, tf.float64)
        sizes = tf.cast(images.resize * wide / tf.reduce_min(wide), tf.int32)  # the shorter side is exact
        picture = tf.image.resize(picture, sizes, antialias=True)
        spare = tf.cast(sizes, tf.int64) - [images.height, images.width]
        corner = spare // 2 if numbers is None else tf.bitwise.right_shift(numbers[:2] * (spare + 1), np.int64(32))
        corner = tf.cast(corner, tf.int32)
        picture = tf.image.crop_to_bounding_box(picture, corner[0], corner[1], images.height, images.width)
        if numbers is not None:
            mirrored = tf.bitwise.right_shift(numbers[2], np.int64(31)) == 1
            picture = tf.cond(mirrored, lambda: tf.reverse(picture, [1]), lambda: picture)
        picture = (picture / 255 - images.mean) / images.std
        if self.model is not None:
            order = dict(self.model.inputs)[self.names[0]]
            picture = tf.transpose(picture, [(2, 0, 1)[axis] for axis in order])
        return tf.cast(tf.ensure_shape(picture, self._shape()), self.kind), self.labels[place]

    def _shape(self):
        height, width = self.cell.images.height, self.cell.images.width
        if self.model is None:
            return height, width, 3
        return tuple((3, height, width)[axis] for axis in dict(self.model.inputs)[self.names[0]])

    def _set(self, batches):
        cell = self.cell
        positions = np.arange(batches * cell.batch, dtype=np.int64)
        if cell.images is None:
            places = tf.data.Dataset.from_tensor_slices(positions % len(cell.samples()))
            made = places.batch(cell.batch, drop_remainder=True).map(
                lambda indices: tuple(tf.gather(rows, indices) for rows in self.rows),
                num_parallel_calls=cell.threads, deterministic=True)
        else:
            numbers = frame.drawn(positions, cell.seed).astype(np.int64)
            made = tf.data.Dataset.from_tensor_slices((positions % len(cell.images.paths), numbers)).map(
                self._picture, num_parallel_calls=cell.threads, deterministic=True).batch(
                    cell.batch, drop_remainder=True)
        options = tf.data.Options()
        options.threading.private_threadpool_size = cell.threads
        made = made.with_options(options)
        if cell.device != "cpu":
            return made.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))
        return made.prefetch(tf.data.AUTOTUNE)

    def first(self):
        samples = [self._picture(position % len(self.cell.images.paths), None)[0].numpy()
                   for position in range(self.cell.batch)]
        return np.stack(samples).transpose(0, 3, 1, 2)

    def begin(self, batches):
        self.iterator = iter(self._set(batches))

    def next(self):
        self.last = dict(zip(self.names, next(self.iterator)))
        if self.model is None:
            return self.last
        return tuple(tuple(self.last[name] for name, _ in wanted) for wanted in (self.model.inputs, self.model.targets))

    def read(self, placed):
        return {name: value.numpy() for name, value in self.last.items()}

    def synchronize(self):
        process.synchronize()
