"""Loads the real torchvision, whose wheel for GPUs does not fit a PyTorch without CUDA.

Importing torchvision registers shape rules for two of its compiled operators. Where its library cannot be loaded those
operators are unknown and the import fails. So they are declared first, unless the library does load.
"""

import importlib.machinery
import os
import sys

import torch

_stubs = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_places = [entry for entry in sys.path if entry and os.path.abspath(entry) != _stubs]
_real = importlib.machinery.PathFinder.find_spec("torchvision", _places)
if _real is None:
    raise ImportError("torchvision is not installed beside the lab's stub for it")

try:
    torch.ops.load_library(os.path.join(os.path.dirname(_real.origin), "_C.so"))
except OSError:
    _declared = torch.library.Library("torchvision", "DEF")
    _declared.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

__path__ = list(_real.submodule_search_locations)
__file__ = _real.origin
__spec__.submodule_search_locations[:] = __path__
__spec__.origin = _real.origin
_real.loader.exec_module(sys.modules[__name__])
