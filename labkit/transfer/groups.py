"""From a pre-trained model to a task: another head, and which layers learn, and how fast.

    model = classifier(language_model, labels=2)          # the backbone stays, the head is new
    groups = discriminative(model, factor=2.6)            # Howard and Ruder 2018, section 3.2
    for report in Trainer(model, labels_of(model), batches, plan, groups=groups).run():
        unfreeze_from_top(model, 1 + report.step // epoch)    # the same paper, section 3.3

All of it is a function of the layers of a model, from its embeddings up to its head.
"""

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

from torch import nn

from labkit.blocks import Classifier, LanguageModel, backbone_of
from labkit.checks import check_above_zero, check_whole
from labkit.heads import Label, Pooled, Span
from labkit.models.awd_lstm import AWDLSTM
from labkit.models.bert import BERT
from labkit.models.elmo import ELMo, WeightedSum
from labkit.objectives import Labels
from labkit.transfer.mixed import Mixed

Part = TypeVar("Part", bound=nn.Module)

# ---- layers ------------------------------------------------------------------------------------


def layer_groups(model: Any) -> list[list[nn.Parameter]]:
    """The parameters of each layer, from the embeddings (first) up to the head (last).

    What stands above the last block (a last norm, a pooler, a mix of layers) goes with the head.
    A weight that two layers share belongs to the lower one: tied words to the embeddings.
    """
    backbone = backbone_of(model)
    inside = {id(p) for part in (*backbone.blocks, *backbone.above()) for p in part.parameters()}
    layers = [[p for p in backbone.parameters() if id(p) not in inside]]
    layers += [list(block.parameters()) for block in backbone.blocks]
    top = list(model.parameters())
    seen: set[int] = set()
    groups = []
    for layer in [*layers, top]:
        groups.append([p for p in layer if id(p) not in seen])
        seen |= {id(p) for p in layer}
    return groups


def freeze(parameters: Sequence[nn.Parameter], frozen: bool = True) -> None:
    """These parameters do not learn, or learn again."""
    for parameter in parameters:
        parameter.requires_grad_(not frozen)


def unfreeze_from_top(model: nn.Module, layers: int) -> None:
    """Only the `layers` highest layers learn, the head being the first of them.

    Called with 1, 2, 3, ... in the loop of training, it is gradual unfreezing; with n + 1, once,
    it is fine-tuning of the last n layers.
    """
    check_whole("layers", layers)
    groups = layer_groups(model)
    for height, group in enumerate(reversed(groups)):
        freeze(group, frozen=height >= layers)


def features_only(model: Any) -> None:
    """The backbone does not learn; the head does, and the mix of layers that stands on it."""
    backbone = backbone_of(model)
    freeze(list(backbone.parameters()))
    if isinstance(backbone, Mixed):
        freeze(list(backbone.mix.parameters()), frozen=False)


def discriminative(model: nn.Module, factor: float = 2.6) -> list[tuple[list[nn.Parameter], float]]:
    """Groups for the Trainer: each layer learns `factor` times slower than the one above it."""
    check_above_zero(factor=factor)
    groups = layer_groups(model)
    top = len(groups) - 1
    return [(group, factor ** (i - top)) for i, group in enumerate(groups) if group]


# ---- heads -------------------------------------------------------------------------------------


def classifier(
    model: Any, labels: int, *, dropout: float | None = None, projection: bool = False
) -> Classifier:
    """The backbone of a pre-trained model under a new head for whole texts.

    Each family answers as in its paper: BERT from the first position, GPT and XLNet from the last
    one, the AWD-LSTM from last, max and mean together, ELMo from a weighted sum of its layers.
    BERT has a tanh layer between; `projection` gives one to GPT and XLNet too, as XLNet's release
    has it (modeling.py, summarize_sequence). Without it the two have one head and are compared.
    Dropout is 0.1 unless given, and 0 for ELMo, whose layers are mixed anew for each task.
    """
    backbone = _for_task(model)
    mixed = isinstance(backbone, Mixed)
    if dropout is None:
        dropout = 0.0 if mixed else 0.1
    if mixed:
        parts = ("max", "mean")
        head: nn.Module = Pooled(backbone.width, labels, parts=parts, dropout=dropout)
    elif isinstance(backbone, AWDLSTM):
        head = Pooled(backbone.width, labels, dropout=dropout)
    elif backbone.summary is None:
        head = Pooled(backbone.width, labels, parts=("max", "mean"), inner=None, dropout=dropout)
    elif backbone.summary == 0:
        pool = backbone.pooler if isinstance(backbone, BERT) else None
        head = Label(backbone.width, labels, pool=pool, dropout=dropout)
    else:
        head = Label(backbone.width, labels, pooled=projection, dropout=dropout)
    return Classifier(backbone, _alike(head, backbone))


def tagger(model: Any, labels: int) -> Classifier:
    """The backbone of a pre-trained model under a new head for each word; ELMo's layers mixed."""
    backbone = _for_task(model)
    head = Label(backbone.width, labels, pooled=False, each=True)
    return Classifier(backbone, _alike(head, backbone))


def span_finder(model: Any) -> Classifier:
    """The same under a head that marks both ends of an answer in each text."""
    backbone = _for_task(model)
    return Classifier(backbone, _alike(Span(backbone.width), backbone))


def _for_task(model: Any) -> Any:
    """The backbone that a new head stands on; an ELMo's layers are mixed anew for each task."""
    backbone = _below_mix(backbone_of(model))
    if not isinstance(backbone, ELMo):
        return backbone
    return Mixed(backbone, _alike(WeightedSum(1 + len(backbone.blocks)), backbone))


def _below_mix(backbone: Any) -> Any:
    """The backbone itself, without a mix of its layers that another task has learned."""
    return backbone.backbone if isinstance(backbone, Mixed) else backbone


def _alike(new: Part, backbone: nn.Module) -> Part:
    """A new part of a model where the backbone is, and in its precision."""
    example = next(backbone.parameters())
    return new.to(example.device, example.dtype)


def labels_of(model: Classifier) -> Labels:
    """The objective that asks a classifier at the position where its head answers."""
    if isinstance(model.head, Span):
        raise ValueError("the head Span scores positions, which are no labels: give SpanEnds()")
    if isinstance(model.head, Pooled):
        return Labels(position="pooled")
    if getattr(model.head, "each", False):
        return Labels(position="each")
    return Labels(position="first" if model.backbone.summary == 0 else "last")


def language_model_of(model: Any, like: LanguageModel) -> LanguageModel:
    """The backbone of a classifier under the head for words that it was trained with.

    A head that was tied to the words of `like` is tied to those of the classifier, which may have
    learned since. Of an ELMo it is the backbone below the mix of its layers.
    """
    backbone, head = _below_mix(model.backbone), like.head
    own = list(like.backbone.token.parameters())
    if {id(p) for p in own} & {id(p) for p in head.parameters()}:
        # A copy of the head in which each of these weights is replaced by the classifier's.
        memo = dict(zip(map(id, own), backbone.token.parameters(), strict=True))
        head = copy.deepcopy(head, memo)
    return LanguageModel(backbone, head)
