"""YAML as nodes that know their lines, read by libyaml: a tenth of the time that Python needs for it."""

import yaml


def composed(text: str) -> yaml.Node | None:
    """Compose the one document of a text; None where the text is empty. Raises YAMLError and RecursionError. Python's
    parser reads again what libyaml refuses: its messages are the same on every machine."""
    try:
        return yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return yaml.compose(text, Loader=yaml.SafeLoader)
