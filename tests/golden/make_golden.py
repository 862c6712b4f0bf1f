"""Writes the values of PyTorch that the tests compare with: everything below tests/golden that ends in .txt.

    python3 tests/golden/make_golden.py        (needs torch and numpy; writes beside itself)

Inputs and weights come from an integer hash that the C++ side computes as well (support/values.h), so only results
are stored. The operations are listed by family in ops/<family>.py, each a row of OPS: (name of the case in
tests/op_cases, inputs, call), an input being (shape, low, high[, kind]); results go to ops/<family>.txt.
"""
import importlib
import math
import pathlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from layers import INITIAL, LAYERS
from models import MODELS, DeepSpeech2, Gnmt, ImdbLstm, PtbLstm, Seq2Seq, Tacotron2

HERE = pathlib.Path(__file__).resolve().parent
torch.set_num_threads(1)


def hash32(i, salt):
    h = (i.astype(np.uint64) + np.uint64(salt * 0x9E3779B9 & 0xFFFFFFFF)) & np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h ^= h >> np.uint64(shift)
        h = h * np.uint64(factor) & np.uint64(0xFFFFFFFF)
    return h ^ (h >> np.uint64(16))


def hash_array(shape, salt, low=-1.0, high=1.0):
    i = np.arange(math.prod(shape), dtype=np.uint64)
    u = (hash32(i, salt) >> np.uint64(8)).astype(np.float64) * 2.0**-24
    return torch.tensor((low + (high - low) * u).reshape(shape), dtype=torch.float64)


def name_salt(name):
    h = 2166136261
    for c in name.encode():
        h = (h ^ c) * 16777619 & 0xFFFFFFFF
    return h


def numbers(tensor):
    return " ".join(f"{v:.10g}" for v in tensor.detach().double().flatten().tolist())


def shape_text(shape):
    return ",".join(map(str, shape)) if len(shape) else "-"


def write_ops():
    for source in sorted((HERE / "ops").glob("*.py")):
        source.with_suffix(".txt").write_text(op_lines(importlib.import_module(f"ops.{source.stem}").OPS))


def op_lines(ops):
    lines = []
    for name, specs, call in ops:
        inputs = []
        lines.append(f"case {name}")
        for position, (shape, low, high, *kind) in enumerate(specs):
            x = hash_array(shape, 1000 * (position + 1), low, high)
            lines.append(f"input {shape_text(shape)} {low:g} {high:g} {kind[0] if kind else 'real'}")
            if kind:
                x = x.floor().to(torch.bool if kind[0] == "boolean" else torch.int64)
            inputs.append(x.requires_grad_() if x.is_floating_point() else x)
        y = call(*inputs)
        lines.append(f"output {shape_text(y.shape)} {numbers(y)}")
        if y.requires_grad:
            (y * y * hash_array(tuple(y.shape), 77)).sum().backward()
            for i, x in enumerate(inputs):
                if x.requires_grad and x.grad is not None:  # PyTorch gives none for some weights and targets
                    lines.append(f"gradient {i} {shape_text(x.shape)} {numbers(x.grad)}")
    return "\n".join(lines) + "\n"


# ---- training steps of the zoo's models (models.py)

# model, classes, input with the batch, steps, optimisers[, gain of the weights]
RUNS = [
    ("mlp", 10, (8, 1, 28, 28), 10, ("sgd", "adam")),
    ("lenet", 10, (8, 1, 28, 28), 10, ("sgd", "adam")),
    ("mnist_cnn", 10, (8, 1, 28, 28), 10, ("sgd", "adam")),
    ("cifar10_cnn", 10, (2, 3, 32, 32), 10, ("sgd", "adam")),
    ("svhn_cnn", 10, (2, 3, 32, 32), 10, ("sgd", "adam")),
    ("cifar100_cnn", 100, (1, 3, 32, 32), 10, ("sgd", "adam")),
    ("alexnet", 10, (1, 3, 127, 95), 10, ("sgd",)),
    ("resnet18", 10, (3, 3, 40, 48), 10, ("sgd",)),
    ("vgg16", 10, (2, 3, 32, 64), 10, ("sgd",), 2),
]
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.001),
}


def set_weights(module, gain=1):
    with torch.no_grad():
        for name, p in module.named_parameters():
            bound = gain / math.sqrt(math.prod(p.shape[1:])) if p.dim() > 1 else 0.1
            p.copy_(hash_array(tuple(p.shape), name_salt(name), -bound, bound))


def write_training():
    lines = []
    for model_name, classes, shape, steps, optimizers, *gain in RUNS:
        for optimizer_name in optimizers:
            model = MODELS[model_name](classes, shape[1:]).double()
            set_weights(model, *gain)
            optimizer = OPTIMIZERS[optimizer_name](model.parameters())
            losses = []
            for step in range(steps):
                x = hash_array(shape, 9000 + step)
                y = hash_array(shape[:1], 9500 + step, 0, classes).floor().long()
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            lines.append(" ".join(map(str, ["run", model_name, optimizer_name, classes, shape_text(shape), *gain])))
            lines.append("losses " + " ".join(f"{v:.12g}" for v in losses))
            for name, p in model.named_parameters():
                lines.append(f"parameter {name} {p.sum().item():.12g} {p.norm().item():.12g}")
    (HERE / "training.txt").write_text("\n".join(lines) + "\n")


# The models of text: padded texts of different lengths with two classes, and a text whose states go from step to step.
def write_text_training():
    lines = []

    def whole(shape, salt, low, high):
        return hash_array(shape, salt, low, high).floor().long()

    def train(model, name, outputs, shape, words, loss_of, sizes=()):
        model = model.double()
        set_weights(model)
        optimizer = OPTIMIZERS["adam"](model.parameters())
        losses = []
        for step in range(10):
            loss = loss_of(model, step, whole(shape, 9000 + step, 0, words))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        lines.append(" ".join(map(str, ["run", name, "adam", outputs, shape_text(shape), 1, words, *sizes])))
        lines.append("losses " + " ".join(f"{v:.12g}" for v in losses))
        for parameter, p in model.named_parameters():
            lines.append(f"parameter {parameter} {p.sum().item():.12g} {p.norm().item():.12g}")

    def of_class(model, step, tokens):
        n, length = tokens.shape
        out = model(tokens, whole((n,), 9700 + step, 1, length + 1))
        return F.binary_cross_entropy_with_logits(out[:, 0], whole((n,), 9500 + step, 0, 2).double())

    states = [None, None]

    def of_next(model, step, tokens):
        out, after = model(tokens, states)
        states[:] = [tuple(s.detach() for s in pair) for pair in after]
        return F.cross_entropy(out.flatten(0, 1), whole(tuple(tokens.shape), 9500 + step, 0, 40).flatten())

    def of_translation(model, step, source):
        n, length = source.shape
        outputs = 35
        before, targets = (whole((n, length), salt + step, 0, outputs) for salt in (9300, 9500))
        padding = torch.arange(length)[None] >= whole((n,), 9600 + step, 1, length + 1)[:, None]
        out = model(source, whole((n,), 9700 + step, 1, length + 1), before)
        return F.cross_entropy(out.flatten(0, 1), targets.masked_fill(padding, -100).flatten())

    train(ImdbLstm(30, 1), "imdb_lstm", 1, (4, 9), 30, of_class)
    train(PtbLstm(40, 40), "ptb_lstm", 40, (2, 5), 40, of_next)
    train(Seq2Seq(30, 35, 32), "seq2seq", 35, (4, 9), 30, of_translation, ["hidden=32"])
    train(Gnmt(30, 35, 12, 4), "gnmt", 35, (4, 9), 30, of_translation, ["hidden=12", "layers=4"])
    (HERE / "training_text.txt").write_text("\n".join(lines) + "\n")


def write_recognition_training():
    lines = []

    def whole(shape, salt, low, high):
        return hash_array(shape, salt, low, high).floor().long()

    n, frames, bins, labels, letters = 3, 24, 161, 29, 4
    for layers, hidden, steps, optimizer_name in ((2, 128, 10, "sgd"), (5, 800, 3, "sgd")):
        model = DeepSpeech2(layers, hidden, labels).double()
        set_weights(model)
        optimizer = OPTIMIZERS[optimizer_name](model.parameters())
        losses = []
        for step in range(steps):
            out, true_steps = model(hash_array((n, frames, bins), 9000 + step), whole((n,), 9700 + step, 13, frames + 1))
            loss = F.ctc_loss(F.log_softmax(out, 2).transpose(0, 1), whole((n, letters), 9500 + step, 1, labels), true_steps,
                              whole((n,), 9800 + step, 1, letters + 1), zero_infinity=True)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        lines.append(f"run deepspeech2 {optimizer_name} {labels} {n},{frames},{bins} 1 0 layers={layers} hidden={hidden}")
        lines.append("losses " + " ".join(f"{v:.12g}" for v in losses))
        for parameter, p in model.named_parameters():
            lines.append(f"parameter {parameter} {p.sum().item():.12g} {p.norm().item():.12g}")
    (HERE / "training_recognition.txt").write_text("\n".join(lines) + "\n")


# Speech from text: clips of different lengths, without dropout and zoneout.
SPEECH_SIZES = dict(mels=5, embedding=8, encoder_layers=2, encoder_kernel=3, prenet=6, attention_rnn=10, decoder_rnn=9,
                    attention=7, filters=4, location_kernel=5, postnet=6, postnet_layers=3, postnet_kernel=5)


def write_speech_training():
    lines = []
    n, length, frames, words = 3, 7, 11, 12
    for optimizer_name in ("sgd", "adam"):
        model = Tacotron2(words, SPEECH_SIZES).double()
        set_weights(model)
        optimizer = OPTIMIZERS[optimizer_name](model.parameters())
        losses = []
        for step in range(10):
            tokens = hash_array((n, length), 9000 + step, 0, words).floor().long()
            lengths = hash_array((n,), 9700 + step, 1, length + 1).floor().long()
            mels = hash_array((n, frames, SPEECH_SIZES["mels"]), 9500 + step)
            counts = hash_array((n,), 9800 + step, 1, frames + 1).floor().long()
            before, after, gates = model(tokens, lengths, mels, counts)
            at = torch.arange(frames)
            within, last = at < counts[:, None], (at == counts[:, None] - 1).double()
            loss = (F.mse_loss(before[within], mels[within]) + F.mse_loss(after[within], mels[within])
                    + F.binary_cross_entropy_with_logits(gates[within], last[within], pos_weight=torch.tensor(10.0)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        settings = [f"{name}={size}" for name, size in SPEECH_SIZES.items()]
        lines.append(" ".join(map(str, ["run", "tacotron2", optimizer_name, 0, shape_text((n, length, frames)), 1, words,
                                        *settings])))
        lines.append("losses " + " ".join(f"{v:.12g}" for v in losses))
        for parameter, p in model.named_parameters():
            lines.append(f"parameter {parameter} {p.sum().item():.12g} {p.norm().item():.12g}")
    (HERE / "training_speech.txt").write_text("\n".join(lines) + "\n")


# The models of RUNS under autocast: f32 weights, products in bf16, the loss in f32 (as on CUDA, where log_softmax takes f32; the CPU's
# list leaves it out). Losses alone: what autocast_test.cpp compares with.
def write_autocast_training():
    lines = []
    for model_name, classes, shape, steps, _, *gain in RUNS:
        model = MODELS[model_name](classes, shape[1:]).float()
        set_weights(model, *gain)
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        losses = []
        for step in range(steps):
            x = hash_array(shape, 9000 + step).float()
            y = hash_array(shape[:1], 9500 + step, 0, classes).floor().long()
            with torch.autocast("cpu", torch.bfloat16):
                out = model(x)
            loss = F.cross_entropy(out.float(), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        lines.append(" ".join(map(str, ["run", model_name, "sgd", classes, shape_text(shape), *gain])))
        lines.append("losses " + " ".join(f"{v:.6g}" for v in losses))
    (HERE / "training_bf16.txt").write_text("\n".join(lines) + "\n")


# ---- how dtypes combine

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i8": torch.int8,
    "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "u16": torch.uint16,
    "u32": torch.uint32, "u64": torch.uint64, "bool": torch.bool,
}


def write_promotion():
    names = {dtype: name for name, dtype in DTYPES.items()}
    lines = []

    def add(kind, a, b, ask):
        try:
            lines.append(f"{kind} {a} {b} {names[ask()]}")
        except RuntimeError:
            pass  # PyTorch has no answer for this pair (some of the unsigned types)

    for a, x in DTYPES.items():
        for b, y in DTYPES.items():
            add("types", a, b, lambda: torch.promote_types(x, y))
            add("zero_d", a, b, lambda: torch.result_type(torch.empty(2, dtype=x), torch.empty((), dtype=y)))
            add("both_zero_d", a, b, lambda: torch.result_type(torch.empty((), dtype=x), torch.empty((), dtype=y)))
        for kind, number in (("bool", True), ("int", 2), ("float", 2.5)):
            add("number", a, kind, lambda: torch.result_type(torch.empty(2, dtype=x), number))
            add("zero_d_number", a, kind, lambda: torch.result_type(torch.empty((), dtype=x), number))
    (HERE / "promotion.txt").write_text("\n".join(lines) + "\n")


# ---- optimisers over ten made-up steps, schedules and clipping: what optim_test.cpp compares with

OPTIM_RUNS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, weight_decay=0.1),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, weight_decay=0.1, nesterov=True),
    "adam": torch.optim.Adam,
    "adam_decay": lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1),
    "adamw": torch.optim.AdamW,
    "adamw_decay": lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.3),
    "adamax": torch.optim.Adamax,
    "adamax_decay": lambda p: torch.optim.Adamax(p, lr=0.02, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1),
    "adadelta": torch.optim.Adadelta,
    "adadelta_decay": lambda p: torch.optim.Adadelta(p, lr=0.7, rho=0.8, eps=1e-4, weight_decay=0.1),
    "adagrad": torch.optim.Adagrad,
    "adagrad_decay": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.2, weight_decay=0.1,
                                                   initial_accumulator_value=0.3, eps=1e-4),
    "rmsprop": torch.optim.RMSprop,
    "rmsprop_momentum": lambda p: torch.optim.RMSprop(p, lr=0.02, alpha=0.9, eps=1e-4, weight_decay=0.1,
                                                      momentum=0.7),
    "rmsprop_centered": lambda p: torch.optim.RMSprop(p, centered=True),
    "rmsprop_all": lambda p: torch.optim.RMSprop(p, lr=0.02, alpha=0.9, momentum=0.7, centered=True),
    "adam_decoupled": lambda p: torch.optim.Adam(p, lr=0.02, weight_decay=0.3, decoupled_weight_decay=True),
    "sgd_groups": lambda p: torch.optim.SGD(
        [dict(params=p[:1]), dict(params=p[1:], lr=0.2, momentum=0.0, weight_decay=0.0)], lr=0.05, momentum=0.8,
        weight_decay=0.1),
    "adamw_groups": lambda p: torch.optim.AdamW(
        [dict(params=p[:1]), dict(params=p[1:], lr=0.05, betas=(0.7, 0.9), eps=1e-3, weight_decay=0.0)], lr=0.02,
        weight_decay=0.3),
    "rmsprop_groups": lambda p: torch.optim.RMSprop(
        [dict(params=p[:1]), dict(params=p[1:], lr=0.05, alpha=0.8, centered=True)], lr=0.02),
    "adagrad_groups": lambda p: torch.optim.Adagrad(
        [dict(params=p[:1]), dict(params=p[1:], lr=0.05, lr_decay=0.3)], lr=0.02),
    "sgd_dampening": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, dampening=0.3, weight_decay=0.1),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.8, 0.5), eps=1e-4, amsgrad=True),
    "adamw_amsgrad": lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.8, 0.5), weight_decay=0.3, amsgrad=True),
    "nadam": torch.optim.NAdam,
    "nadam_decay": lambda p: torch.optim.NAdam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1,
                                               momentum_decay=0.2),
    "nadam_decoupled": lambda p: torch.optim.NAdam(p, lr=0.02, weight_decay=0.3, decoupled_weight_decay=True),
    "nadam_groups": lambda p: torch.optim.NAdam(
        [dict(params=p[:1]), dict(params=p[1:], lr=0.05, betas=(0.7, 0.9), momentum_decay=0.1)], lr=0.02),
    "radam": torch.optim.RAdam,
    "radam_decay": lambda p: torch.optim.RAdam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1),
    "radam_never": lambda p: torch.optim.RAdam(p, lr=0.02, betas=(0.8, 0.5), eps=1e-4),
    "radam_decoupled": lambda p: torch.optim.RAdam(p, lr=0.02, weight_decay=0.3, decoupled_weight_decay=True),
}
# L-BFGS by name; the loss is that of lbfgs_loss.
LBFGS_RUNS = {
    "plain": dict(lr=0.1, max_iter=3),
    "first_step": dict(lr=0.5, max_iter=1, history_size=2),
    "wolfe": dict(max_iter=4, history_size=3, line_search_fn="strong_wolfe"),
    "wolfe_far": dict(lr=40, max_iter=3, line_search_fn="strong_wolfe"),
    "wolfe_short": dict(lr=0.001, max_iter=2, max_eval=6, line_search_fn="strong_wolfe"),
}
OPTIM_SHAPES = [(3, 4), (5,)]
STEPS = 10
SCHEDULE_STEPS = 30
SCHEDULES = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 7),
    "step_factor": lambda o: torch.optim.lr_scheduler.StepLR(o, 4, gamma=0.6),
    "exponential": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 20),
    "cosine_least": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 29, eta_min=0.05),
    "warm_up": lambda o: torch.optim.lr_scheduler.LinearLR(o),
    "warm_up_slow": lambda o: torch.optim.lr_scheduler.LinearLR(o, start_factor=0.01, total_iters=12),
    "one_cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.4, SCHEDULE_STEPS),
    "one_cycle_linear": lambda o: torch.optim.lr_scheduler.OneCycleLR(
        o, 0.4, SCHEDULE_STEPS, pct_start=0.25, anneal_strategy="linear", div_factor=10, final_div_factor=100),
    "one_cycle_three": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.4, SCHEDULE_STEPS, three_phase=True),
}
PLATEAUS = {
    "plateau": dict(patience=2),
    "plateau_cooldown": dict(patience=1, cooldown=3, factor=0.5, threshold=0.05, threshold_mode="abs", min_lr=0.06),
    "plateau_max": dict(mode="max", patience=3, factor=0.3, threshold=0.1),
}


def lbfgs_loss(parameters):
    """A valley that curves: Rosenbrock's function of the first parameter, and a quartic of the second."""
    p, q = parameters
    a, b = p[:, :2], p[:, 2:]
    return ((b - a * a) ** 2 * 10 + (1 - a) ** 2).sum() + ((q - hash_array((5,), 90)) ** 4).sum()


def lbfgs_lines():
    lines = []
    for name, options in LBFGS_RUNS.items():
        parameters = [hash_array(s, 40 + i).requires_grad_() for i, s in enumerate(OPTIM_SHAPES)]
        optimizer = torch.optim.LBFGS(parameters, **options)

        def closure():
            optimizer.zero_grad()
            loss = lbfgs_loss(parameters)
            loss.backward()
            return loss

        for step in range(STEPS):
            loss = optimizer.step(closure)
            state = optimizer.state[parameters[0]]
            lines.append(f"lbfgs_counts {name} {step} {loss.item():.10g} {state['n_iter']} {state['func_evals']}")
            if step in (0, 3, STEPS - 1):
                for i, p in enumerate(parameters):
                    lines.append(f"lbfgs {name} {step} {i} {shape_text(p.shape)} {numbers(p)}")
    return lines


def write_optim():
    lines = lbfgs_lines()
    for name, make in OPTIM_RUNS.items():
        parameters = [hash_array(s, 40 + i).requires_grad_() for i, s in enumerate(OPTIM_SHAPES)]
        optimizer = make(parameters)
        for step in range(STEPS):
            for i, p in enumerate(parameters):
                p.grad = hash_array(tuple(p.shape), 500 + 10 * step + i) + 0.5 * p.detach()
            optimizer.step()
            if step in (0, STEPS - 1):
                for i, p in enumerate(parameters):
                    lines.append(f"run {name} {step} {i} {shape_text(p.shape)} {numbers(p)}")

    def rates(scheduler, optimizer, take):
        values = []
        for step in range(SCHEDULE_STEPS):
            values.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if step + 1 < SCHEDULE_STEPS:
                take(scheduler, step)
        return " ".join(f"{v:.15g}" for v in values)

    for name, make in SCHEDULES.items():
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4, momentum=0.9)
        lines.append(f"schedule {name} {rates(make(optimizer), optimizer, lambda s, _: s.step())}")
    measures = hash_array((SCHEDULE_STEPS,), 60, 0.5, 1.5).tolist()
    for name, options in PLATEAUS.items():
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        lines.append(f"schedule {name} {rates(scheduler, optimizer, lambda s, step: s.step(measures[step]))}")

    for name, clip in (
        ("norm_1.5", lambda p: torch.nn.utils.clip_grad_norm_(p, 1.5)),
        ("norm_100", lambda p: torch.nn.utils.clip_grad_norm_(p, 100)),
        ("value_0.3", lambda p: torch.nn.utils.clip_grad_value_(p, 0.3)),
    ):
        parameters = [torch.zeros(s, dtype=torch.float64, requires_grad=True) for s in OPTIM_SHAPES]
        for i, p in enumerate(parameters):
            p.grad = hash_array(tuple(p.shape), 80 + i)
        clip(parameters)
        for i, p in enumerate(parameters):
            lines.append(f"clip {name} {i} {shape_text(p.shape)} {numbers(p.grad)}")
    # The moving average of weights: plain, and the rates of two groups under one schedule.
    for decay in (0.9, 0.99):
        model = nn.ParameterList([hash_array(s, 40 + i) for i, s in enumerate(OPTIM_SHAPES)])
        average = torch.optim.swa_utils.AveragedModel(
            model, avg_fn=torch.optim.swa_utils.get_ema_avg_fn(decay))
        optimizer = torch.optim.SGD([dict(params=[model[0]]), dict(params=[model[1]], lr=0.2)], lr=0.05)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
        for step in range(STEPS):
            for i, p in enumerate(model):
                p.grad = hash_array(tuple(p.shape), 500 + 10 * step + i) + 0.5 * p.detach()
            optimizer.step()
            schedule.step()
            average.update_parameters(model)
            if step in (0, STEPS - 1):
                for i, p in enumerate(average.module):
                    lines.append(f"ema {decay} {step} {i} {shape_text(p.shape)} {numbers(p)}")

    # Gradients of one batch of 10 samples: what batches of 4, 4 and 2 must add up to.
    x, y = hash_array((10, 4), 90), hash_array((10, 3), 91)
    parameters = [hash_array((3, 4), 92).requires_grad_(), hash_array((3,), 93).requires_grad_()]
    F.mse_loss(F.linear(x, *parameters), y).backward()
    for i, p in enumerate(parameters):
        lines.append(f"accumulate {i} {shape_text(p.shape)} {numbers(p.grad)}")
    (HERE / "optim.txt").write_text("\n".join(lines) + "\n")


# ---- a grid of indexing: each row is "op kind shape numbers indices... = result", an index being shape:salt:low:high

GRID_SHAPES = [(5,), (1,), (3, 4), (2, 3, 4), (4, 1, 3), (2, 3, 2, 2), (0, 3), (3, 0), (2, 0, 3)]


def grid_input(kind, shape):
    """n: the elements' numbers; f: few values, so that there are ties; t: the same with NaN among them."""
    size = math.prod(shape)
    if kind == "n":
        return torch.arange(size, dtype=torch.float32).reshape(shape)
    x = hash_array(shape, 21, -3, 3).floor().float() / 2
    if kind == "t":
        mask = hash32(np.arange(size, dtype=np.uint64), 9) % np.uint64(6) == 0
        x[torch.tensor(mask.reshape(shape))] = math.nan
    return x


def grid_rows():
    """(op, kind, shape, numbers, [(shape, salt, low, high)], call)"""
    for shape in GRID_SHAPES:
        rank = len(shape)
        for axis in range(-rank, rank):
            n = shape[axis]
            for start, stop, step in ((0, n, 1), (1, -1, 1), (-2, 99, 1), (-99, 3, 2), (3, 1, 1), (0, n, 3),
                                      (-3, -1, 2)):
                index = [slice(None)] * rank
                index[axis] = slice(start, stop, step)
                yield "slice", "n", shape, (axis, start, stop, step), [], lambda x, i=tuple(index): x[i]
        for axis in range(rank):
            n = shape[axis]
            for at in sorted({0, -n, n - 1} if n else ()):
                yield "select", "n", shape, (axis, at), [], lambda x, a=axis, k=at: x.select(a, k)
            for size in (0, 1, 3) if n else (0,):
                other = tuple(size if d == axis else max(s - 1, 0) if d % 2 else s for d, s in enumerate(shape))
                spec = [(other, 31 + axis, 0, n)]
                yield "gather", "n", shape, (axis,), spec, lambda x, i, a=axis: torch.gather(x, a, i)
                yield "scatter_add", "n", shape, (axis,), spec, lambda x, i, a=axis: x.scatter_add(
                    a, i, torch.ones(i.shape))
                yield "scatter_number", "n", shape, (axis,), spec, lambda x, i, a=axis: x.scatter(a, i, 9)
                one = tuple(size if d == axis else 1 for d in range(rank))
                yield "take_along", "n", shape, (axis,), [(one, 32, 0, n)], lambda x, i, a=axis: torch.take_along_dim(
                    x, i, a)
                yield "index_select", "n", shape, (axis,), [((size,), 33, 0, n)], lambda x, i, a=axis: x.index_select(
                    a, i)
                yield "index_add", "n", shape, (axis,), [((size,), 34, 0, n)], lambda x, i, a=axis: x.index_add(
                    a, i, torch.ones(tuple(len(i) if d == a else s for d, s in enumerate(x.shape))))
            for kind in "ft":
                for down in (0, 1):
                    yield "sort", kind, shape, (axis, down), [], lambda x, a=axis, d=down: torch.sort(
                        x, dim=a, descending=bool(d), stable=True)[0]
                    yield "argsort", kind, shape, (axis, down), [], lambda x, a=axis, d=down: torch.argsort(
                        x, dim=a, descending=bool(d), stable=True)
                    for k in sorted({0, 1, n // 2, n} if n else {0}):
                        yield "topk", kind, shape, (axis, k, down), [], lambda x, a=axis, k=k, d=down: torch.topk(
                            x, k, a, bool(d))[0]
        # index tensors on one, two and three axes, neighbours or not
        for axes in ((0,), (1,), (0, 1), (0, 2), (1, 2), (1, 3), (0, 1, 2)):
            if axes[-1] >= rank:
                continue
            for shapes in (((2,), (2,), (2,)), ((3, 1), (2,), (1, 2)), ((0,), (1,), (1,)), ((), (2,), ())):
                spec = [(s, 40 + d, -shape[d], shape[d]) for d, s in zip(axes, shapes)]
                if any(shape[d] == 0 and 0 not in s for d, s in zip(axes, shapes)):
                    continue
                def call(x, *indices, axes=axes):
                    by_axis = [slice(None)] * x.dim()
                    for d, i in zip(axes, indices):
                        by_axis[d] = i
                    return x[tuple(by_axis)]
                def add(x, *indices, axes=axes, call=call):
                    places = call(torch.arange(x.numel()).reshape(x.shape), *indices)
                    return x.flatten().index_add(0, places.flatten(), torch.ones(places.numel())).reshape(x.shape)
                yield "index", "n", shape, axes, spec, call
                yield "index_put_add", "n", shape, axes, spec, add
        for kind in "ft":
            yield "unique", kind, shape, (), [], torch.unique
            yield "unique_counts", kind, shape, (), [], lambda x: torch.unique(x, return_counts=True)[1]
            for right in (0, 1):
                yield "searchsorted", kind, shape, (right,), [], lambda x, r=right: torch.searchsorted(
                    torch.tensor([-1, -1, -0.5, 0.5, 0.5, 1]), x, right=bool(r))
        yield "unique_inverse", "f", shape, (), [], lambda x: torch.unique(x, return_inverse=True)[1]
        yield "nonzero", "f", shape, (), [], torch.nonzero


def write_indexing():
    lines = []
    for op, kind, shape, params, specs, call in grid_rows():
        indices = [hash_array(s, salt, low, high).floor().long() for s, salt, low, high in specs]
        y = call(grid_input(kind, shape), *indices)
        words = [op, kind, shape_text(shape), ",".join(map(str, params)) or "-"]
        words += [f"{shape_text(s)}:{salt}:{low}:{high}" for s, salt, low, high in specs]
        lines.append(" ".join(words + ["=", shape_text(y.shape), numbers(y)]).rstrip())
    (HERE / "indexing.txt").write_text("\n".join(lines) + "\n")


# ---- normalising layers: two batches in training, one in evaluation; what norm_test.cpp compares with

NORM_LAYERS = {
    "batch_norm_1d": (lambda: nn.BatchNorm1d(4), (6, 4)),
    "batch_norm_1d_long": (lambda: nn.BatchNorm1d(4, eps=0.01, momentum=0.3), (3, 4, 5)),
    "batch_norm_2d": (lambda: nn.BatchNorm2d(3), (2, 3, 4, 5)),
    "batch_norm_2d_plain": (lambda: nn.BatchNorm2d(3, affine=False), (2, 3, 4, 5)),
    "batch_norm_2d_untracked": (lambda: nn.BatchNorm2d(3, track_running_stats=False), (2, 3, 4, 5)),
    "batch_norm_3d": (lambda: nn.BatchNorm3d(2), (2, 2, 3, 2, 2)),
    "layer_norm": (lambda: nn.LayerNorm((4, 5)), (3, 4, 5)),
    "layer_norm_no_bias": (lambda: nn.LayerNorm(5, bias=False), (3, 4, 5)),
    "group_norm": (lambda: nn.GroupNorm(2, 6), (2, 6, 4)),
    "instance_norm_1d": (lambda: nn.InstanceNorm1d(3, affine=True), (2, 3, 7)),
    "instance_norm_2d": (lambda: nn.InstanceNorm2d(3), (2, 3, 4, 5)),
    "instance_norm_3d": (lambda: nn.InstanceNorm3d(3), (2, 3, 2, 3, 2)),
    "rms_norm": (lambda: nn.RMSNorm(5), (3, 5)),
}


def write_norm_layers():
    lines = []
    for name, (make, shape) in NORM_LAYERS.items():
        layer = make().double()
        with torch.no_grad():
            for key, p in layer.named_parameters():
                p.copy_(hash_array(tuple(p.shape), name_salt(key), 0.5, 2))
        for i in range(3):
            layer.train(i < 2)
            y = layer(hash_array(shape, 700 + i, -1, 2))
            lines.append(f"{name} y{i} {shape_text(y.shape)} {numbers(y)}")
        for key, value in sorted(layer.state_dict().items()):
            if not key.endswith("tracked"):
                lines.append(f"{name} {key} {shape_text(value.shape)} {numbers(value)}")
    (HERE / "norm_layers.txt").write_text("\n".join(lines) + "\n")


# ---- every layer (layers.py): its state, output and gradients, and its initial values; for layers_golden_test.cpp

QUANTILES = (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)


def write_layers():
    lines = []
    for name, make, shape, *rest in LAYERS:
        low, high, kind = (rest + [-2, 2, "real"][len(rest):])
        mode = "eval" if "Dropout" in name else "train"
        layer = make().double().train(mode == "train")
        set_weights(layer)
        x = hash_array(shape, 900, low, high)
        x = x.requires_grad_() if kind == "real" else x.floor().long()
        y = layer(x, x, x) if isinstance(layer, nn.MultiheadAttention) else layer(x)
        y = y[0] if isinstance(y, tuple) else y
        (y * y * hash_array(tuple(y.shape), 77)).sum().backward()
        lines.append(f"layer {name} {mode} {shape_text(shape)} {low} {high} {kind}")
        lines += [f"state {key} {shape_text(value.shape)}" for key, value in state_of(layer)]
        lines.append(f"output {shape_text(y.shape)} {numbers(y)}")
        inputs = [("input", x)] if kind == "real" else []
        for key, value in inputs + list(layer.named_parameters()):
            # Weighted, so that elements in a wrong order do not add up to the same.
            weighted = (value.grad * hash_array(tuple(value.shape), 78)).sum()
            lines.append(f"gradient {key} {weighted:.12g} {value.grad.norm():.12g}")
    torch.manual_seed(0)
    for name, make in INITIAL:
        for key, value in state_of(make()):
            kind = "constant" if value.min() == value.max() else "normal" if name.startswith("Embedding") else "uniform"
            quantiles = value.double().flatten().quantile(torch.tensor(QUANTILES, dtype=torch.float64))
            lines.append(f"initial {name} {key} {kind} {shape_text(value.shape)} {numbers(quantiles)}")
    (HERE / "layers.txt").write_text("\n".join(lines) + "\n")


def state_of(layer):
    return [(key, value) for key, value in layer.state_dict().items() if not key.endswith("tracked")]


if __name__ == "__main__":
    write_ops()
    write_norm_layers()
    write_layers()
    write_training()
    write_text_training()
    write_recognition_training()
    write_speech_training()
    write_autocast_training()
    write_promotion()
    write_optim()
    write_indexing()
