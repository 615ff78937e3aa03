"""From a NetworkConfig to a ProvenanceVAE; the closed table of generators that model files may name."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from provnet.errors import UsageError
from provnet.indexing import IndexMap
from provnet.models.backbones import branch
from provnet.models.config import NetworkConfig
from provnet.models.exemplar import ExemplarHead
from provnet.models.heads import PerClassHead
from provnet.models.made import GENERATORS
from provnet.models.provenance import IndexTrunk, Normalise
from provnet.models.support import Support
from provnet.models.vae import VAE, ProvenanceVAE
from provnet.models.vae_modern import ModernVAE
from provnet.models.vae_paper import FacesVAE, PaperVAE

KEY_WIDTH = 128


def build_generator(config: NetworkConfig, index_map: IndexMap) -> ProvenanceVAE:
    """Build a generator of the closed table with a class head and an index head, initialised as torch does.

    A plain head has one layer for each class, all of them rows of one matrix (`PerClassHead`); an exemplar head looks
    among the keys of the class.

    >>> config = NetworkConfig("class-conditional", "vae-modern", (1, 8, 8), classes=2, head="exemplar")
    >>> build_generator(config, IndexMap([0, 1, 1])).index_head.conditional
    True
    """
    plain = config.head == "plain"
    if config.network != ("class-conditional-heads" if plain else "class-conditional"):
        raise UsageError(
            f'a generator with head "{config.head}" cannot be a "{config.network}" network; '
            'use "class-conditional-heads" with plain heads, "class-conditional" with keys'
        )
    vae = MAKERS[config.backbone](config, index_map)
    trunk, width = nn.Sequential(), vae.features
    if not plain:
        width = config.key_width or KEY_WIDTH
        trunk = nn.Sequential(nn.Linear(vae.features, width))
    head = (
        PerClassHead(width, index_map)
        if plain
        else ExemplarHead(width, index_map, conditional=True, scale=config.key_scale, stored=config.key_type)
    )
    # latents need a hidden layer before classes can be told by a line; a decoder's feature does not (the paper)
    task, task_width = (
        (branch(vae.features, ((256, 0.0),)), 256) if vae.conditional else (nn.Sequential(), vae.features)
    )
    return ProvenanceVAE(
        normalise=Normalise(config),
        backbone=vae,
        task_head=nn.Sequential(task, nn.Linear(task_width, config.classes)),
        index_trunk=IndexTrunk(trunk),
        index_head=head,
        index_map=index_map,
        support=Support(config.classes, vae.features),
    )


MAKERS: dict[str, Callable[[NetworkConfig, IndexMap], VAE]] = dict(
    zip(
        GENERATORS,
        (
            lambda config, _: PaperVAE(config.input_shape),
            lambda config, _: PaperVAE(config.input_shape, mean=True),
            lambda config, _: FacesVAE(config.input_shape),
            lambda config, index_map: ModernVAE(config.input_shape, config.classes, index_map.n),
        ),
        strict=True,
    )
)
