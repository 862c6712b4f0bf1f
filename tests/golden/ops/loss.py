import torch
import torch.nn.functional as F

X, FAR, UNIT = ((4, 5), -1, 1), ((4, 5), -3, 3), ((4, 5), 0.05, 0.95)
FLAG, FLAGS = ((4, 5), 0, 2, "boolean"), ((4,), 0, 2, "boolean")


def sign(flag, like):
    return flag.to(like.dtype) * 2 - 1


OPS = []
for _suffix, _r in (("", "mean"), ("_sum", "sum"), ("_none", "none")):

    def row(name, inputs, call, suffix=_suffix, r=_r):
        OPS.append((name + suffix, inputs, lambda *x: call(*x, reduction=r)))

    def classes(name, shape, weight=False, ignore=-100, smoothing=0.0):
        target = (shape[0],) + shape[2:] if len(shape) > 1 else ()
        c = shape[1] if len(shape) > 1 else shape[0]
        inputs = [(shape, -3, 3), (target, 0, c, "index64")] + ([((c,), 0.5, 2)] if weight else [])
        row("cross_entropy" + name, inputs, lambda x, t, w=None, reduction=None: F.cross_entropy(
            x, t, w.detach() if weight else None, ignore_index=ignore, label_smoothing=smoothing, reduction=reduction))
        if smoothing == 0:
            row("nll_loss" + name, inputs, lambda x, t, w=None, reduction=None: F.nll_loss(
                x, t, w.detach() if weight else None, ignore_index=ignore, reduction=reduction))

    classes("", (5, 7))
    classes("/planes", (2, 4, 3, 2))
    classes("/one", (6,))
    classes("/weight", (5, 4), True)
    classes("/ignore", (6, 4), ignore=2)
    classes("/all", (3, 4, 5), True, 2, 0.1)
    classes("/smooth", (5, 4), smoothing=0.3)
    classes("/smooth_ignore", (6, 4), ignore=2, smoothing=0.3)
    P = ((3, 4, 2), 0, 1)
    row("cross_entropy/probabilities", [((3, 4, 2), -3, 3), P], F.cross_entropy)
    row("cross_entropy/probabilities_weight_smooth", [((3, 4, 2), -3, 3), P, ((4,), 0.5, 2)],
        lambda x, t, w, reduction: F.cross_entropy(x, t, w.detach(), label_smoothing=0.2, reduction=reduction))
    row("mse_loss", [X, X], F.mse_loss)
    row("l1_loss", [X, X], F.l1_loss)
    row("smooth_l1_loss", [X, X], lambda x, t, reduction: F.smooth_l1_loss(x, t, beta=0.4, reduction=reduction))
    row("smooth_l1_loss/zero", [X, X], lambda x, t, reduction: F.smooth_l1_loss(x, t, beta=0.0, reduction=reduction))
    row("huber_loss", [X, X], lambda x, t, reduction: F.huber_loss(x, t, delta=0.4, reduction=reduction))
    row("hinge_embedding_loss", [FAR, FLAG],
        lambda x, t, reduction: F.hinge_embedding_loss(x, sign(t, x), 0.8, reduction=reduction))
    row("soft_margin_loss", [FAR, FLAG], lambda x, t, reduction: F.soft_margin_loss(x, sign(t, x), reduction=reduction))
    row("binary_cross_entropy", [UNIT, UNIT],
        lambda x, t, reduction: F.binary_cross_entropy(x, t.detach(), reduction=reduction))
    row("binary_cross_entropy_with_logits", [((4, 5), -30, 30), UNIT], F.binary_cross_entropy_with_logits)
    row("kl_div", [((4, 5), -3, 0), UNIT], F.kl_div)
    row("kl_div/log_target", [((4, 5), -3, 0), ((4, 5), -2, 0)],
        lambda x, t, reduction: F.kl_div(x, t, log_target=True, reduction=reduction))
    row("poisson_nll_loss", [X, ((4, 5), 0, 3)],
        lambda x, t, reduction: F.poisson_nll_loss(x, t.detach(), reduction=reduction))
    row("poisson_nll_loss/full", [UNIT, ((4, 5), 0, 4)],
        lambda x, t, reduction: F.poisson_nll_loss(x, t.detach(), log_input=False, full=True, reduction=reduction))
    row("cosine_embedding_loss", [X, X, FLAGS],
        lambda a, b, t, reduction: F.cosine_embedding_loss(a, b, sign(t, a), 0.1, reduction=reduction))
    row("margin_ranking_loss", [((4,), -1, 1), ((4,), -1, 1), FLAGS],
        lambda a, b, t, reduction: F.margin_ranking_loss(a, b, sign(t, a), 0.3, reduction=reduction))
    row("triplet_margin_loss", [X, X, X],
        lambda a, p, n, reduction: F.triplet_margin_loss(a, p, n, 0.8, reduction=reduction))
    row("triplet_margin_loss/swap", [X, X, X],
        lambda a, p, n, reduction: F.triplet_margin_loss(a, p, n, 0.8, swap=True, reduction=reduction))
    row("multi_margin_loss", [((5, 4), -1, 1), ((5,), 0, 4, "index64")],
        lambda x, t, reduction: F.multi_margin_loss(x, t, margin=0.7, reduction=reduction))
    row("multi_margin_loss/squared_weight", [((5, 4), -1, 1), ((5,), 0, 4, "index64"), ((4,), 0.5, 2)],
        lambda x, t, w, reduction: F.multi_margin_loss(x, t, p=2, margin=0.7, weight=w.detach(), reduction=reduction))

OPS += [
    ("kl_div/batch_mean", [((4, 5), -3, 0), ((4, 5), -2, 0)],
     lambda x, t: F.kl_div(x, t, log_target=True, reduction="batchmean")),
    ("binary_cross_entropy/weight", [UNIT, UNIT, ((5,), 0.5, 2)],
     lambda x, t, w: F.binary_cross_entropy(x, t.detach(), w.detach().expand(4, 5))),
    ("binary_cross_entropy_with_logits/weights", [FAR, UNIT, ((5,), 0.5, 2), ((5,), 0.5, 2)],
     lambda x, t, w, p: F.binary_cross_entropy_with_logits(x, t, w.detach(), pos_weight=p.detach())),
    ("cosine_similarity", [X, X], F.cosine_similarity),
    ("pairwise_distance", [X, X], F.pairwise_distance),
    ("cdist", [((2, 3, 5), -1, 1), ((4, 5), -1, 1)], torch.cdist),
    ("cdist/p1", [((2, 3, 5), -1, 1), ((4, 5), -1, 1)], lambda a, b: torch.cdist(a, b, 1)),
    ("cdist/p3", [((2, 3, 5), -1, 1), ((4, 5), -1, 1)], lambda a, b: torch.cdist(a, b, 3)),
    ("cdist/most", [((2, 3, 5), -1, 1), ((4, 5), -1, 1)], lambda a, b: torch.cdist(a, b, float("inf"))),
    ("pairwise_distance/p3", [X, X], lambda a, b: F.pairwise_distance(a, b, 3)),
]

OPS.append(("ctc_loss/logits", [((6, 3, 3), -3, 0), ((3, 2), 1, 3, "index64"), ((3,), 4, 7, "index64"), ((3,), 0, 3, "index64")],
            lambda x, t, steps, labels: F.ctc_loss(F.log_softmax(x, 2), t, steps, labels)))
