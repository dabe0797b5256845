"""hansfree: find the shortcut a trained vision model relies on, unlearn it, and prove how much is gone.

    acts = hf.collect_activations(model, "layer4.1.add", loader)
    cav = hf.SignalCAV().fit(acts.pooled, acts.has_artifact)
    fixed = hf.RRClArC(cav, strength=1.0).correct(model, acts)

The public names are listed with their types in ``__init__.pyi``. They are imported on first use, so that
``import hansfree`` costs nothing that is not needed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
