"""Which models take images and PDFs: by name, since no server says so before it is asked."""

import re

from rlm_worker.models.settings import ModelSettings

_IMAGES = re.compile(
    r"gpt-(4o|4\.1|4\.5|5)|(?<![a-z])o[134](?!-mini-high)|claude|gemini|pixtral|llava|internvl|minicpm-v|molmo|"
    r"llama-?(3\.2.*vision|4)|gemma-?3|mistral-(large|medium|small)-(latest|3)|grok-[4-9]|[-_.](vl|vision)\b",
    re.IGNORECASE,
)
_PDFS = re.compile(r"gpt-(4o|4\.1|5)|claude|gemini", re.IGNORECASE)


def sees(model: str, media_type: str, *, settings: ModelSettings) -> bool:
    """Whether this model takes such an input. A model that was listed takes all of them."""
    if model in settings.seeing_models:
        return True
    name = model.rpartition("#")[2] if model.startswith(("http://", "https://")) else model
    if name in settings.seeing_models:
        return True
    if model.startswith("embedded"):
        return False
    known = _PDFS if media_type == "application/pdf" else _IMAGES
    return known.search(name) is not None
