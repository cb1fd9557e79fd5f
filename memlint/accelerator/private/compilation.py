"""PyTorch's private names for the simulation of TorchDynamo, AOTAutograd and Inductor; see `private/__init__.py`.

The import loads all three, some seconds' work. The names were checked with torch 2.10 to 2.13.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from torch._C import _dynamo as compiled_dynamo
from torch._dynamo import config as _dynamo_config
from torch._dynamo import convert_frame as _convert_frame
from torch._dynamo import decorators, device_interface, exc, external_utils, symbolic_convert, trace_rules, utils
from torch._dynamo import reset as forget
from torch._dynamo.hooks import Hooks
from torch._dynamo.repro import after_aot
from torch._dynamo.variables import torch as _torch_functions
from torch._functorch import config as _functorch_config
from torch._inductor import compile_fx, cpu_vec_isa, cudagraph_trees, cudagraph_utils, output_code, select_algorithm
from torch._inductor import config as _inductor_config
from torch._inductor import scheduler as _scheduler
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.codecache import CacheBase, PyCodeCache
from torch._inductor.codegen import triton_utils
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.codegen.triton_split_scan import TritonSplitScanKernel
from torch._inductor.fx_passes import pad_mm
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime import benchmarking
from torch._inductor.runtime import hints as _hints
from torch._prims.rng_prims import graphsafe_run_with_rng_state
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental import proxy_tensor as _proxy_tensor

# --- TorchDynamo

COMPILE_FRAME = "_compile"
"""Name of the function of `convert_frame` that compiles one frame."""
convert_frame: Any = _convert_frame
"""The module that compiles frames."""
Translator: Any = symbolic_convert.InstructionTranslatorBase
"""Goes through the bytecode of one frame."""
LOG_BREAK = "log_graph_break"
"""Name of its function that says where a graph ends before its frame does."""
log_break: Callable[..., None] = symbolic_convert.InstructionTranslatorBase.log_graph_break
"""The function of that name."""
compile_metrics: Any = utils
"""The module that runs nodes on fakes, and says after each compilation how long it took, and with which Triton."""
RUN_NODE = "run_node"
"""Name of its function that runs one node of a graph on fakes."""
run_node: Callable[..., Any] = utils.run_node
"""The function of that name."""
graph_makers: Any = _proxy_tensor
"""The module that makes a graph of what runs on fakes."""
DECOMPOSE = "maybe_handle_decomp"
"""Name of its function that runs an op as those it is decomposed into."""
decompose: Callable[..., Any] = _proxy_tensor.maybe_handle_decomp
"""The function of that name."""
dynamo_config: Any = _dynamo_config
"""Settings of TorchDynamo."""
Failures = (exc.BackendCompilerFailed, exc.InternalTorchDynamoError, exc.ShortenTraceback)
"""The exception of a compilation that fails; code that it does not support is no failure, and runs eagerly."""
Refusals = exc.TorchDynamoException
"""The exception for code that is not compiled, where none may be left to Python (`fullgraph=True`)."""
HookTypes = Hooks
"""Functions that Dynamo calls on the way, among them the filter of guards."""
reset: Callable[[], None] = forget
"""Forgets all that was compiled."""
skip_package: Callable[[str], None] = trace_rules.add
"""Lets Dynamo never look into a package."""
follow_file: Callable[[str], None] = trace_rules.get_legacy_mod_inlinelist().add
"""Lets Dynamo look into a file of a package that it never looks into."""
is_left_out: Callable[[Any], bool] = trace_rules.check
"""Tells whether Dynamo leaves a function's frame to Python."""
tracing_rules: Any = trace_rules
"""The module that tells what becomes of a call of a function."""
RULES = "get_torch_obj_rule_map"
"""Name of its function that returns the rules of PyTorch's functions."""
rules: Callable[[], dict[Any, Any]] = trace_rules.get_torch_obj_rule_map
"""The function of that name."""
called_while_compiling: Callable[[Callable[..., Any]], Callable[..., Any]] = decorators.assume_constant_result
"""Lets Dynamo call a function while it compiles, and take the result for a constant."""
folding: Any = _torch_functions
"""The module that follows calls of PyTorch's functions."""
FOLDED = "constant_fold_functions"
"""Name of its functions that are called while code is compiled, and whose results are constants: the keys."""
constant_types: set[type] = utils.common_constant_types
"""Types of values that may be constants of compiled code."""
in_frame_of_its_own: Callable[[Any], Any] = external_utils.wrap_inline
"""Puts a frame around a function that Dynamo does not leave out."""
CudaInterface: Any = device_interface.CudaInterface
"""The questions of Dynamo and Inductor about CUDA."""
interfaces: dict[str, Any] = device_interface.device_interfaces
"""All such interfaces by device."""
interface_of: Callable[[str], Any] = device_interface.get_interface_for_device
"""The interface of a device; the first call registers those of PyTorch."""
worker_properties: dict[str, Any] = device_interface.caching_worker_device_properties
"""Properties of GPUs by type of device, once they were asked for."""
guards: Any = compiled_dynamo.guards
"""The C++ module whose functions allocate for generated code."""
EMPTY_ON_GPU = "_empty_strided_cuda"
"""Name of its function that allocates on the GPU."""
EMPTY_ON_HOST = "_empty_strided_cpu"
"""Name of its function that allocates on the host."""

# --- Fakes

if hasattr(FakeTensor, "_normalize_fake_device"):
    device_of_fake: Callable[[Any], torch.device] = attrgetter("_fake_device")
    """The device of a fake in C++."""
    _normalize = FakeTensor._normalize_fake_device

    def placing_fakes(instead: Callable[[torch.device], torch.device | None]) -> list[tuple[Any, str, Any]]:
        """Patches (owner, name, replacement) that put new fakes on the device that `instead` gives, if any."""

        def normalize(device: torch.device) -> Any:
            return instead(device) or _normalize(device)

        return [(FakeTensor, "_normalize_fake_device", staticmethod(normalize))]

else:  # until torch 2.11
    device_of_fake = attrgetter("fake_device")
    _new = FakeTensor.__new__

    def placing_fakes(instead: Callable[[torch.device], torch.device | None]) -> list[tuple[Any, str, Any]]:
        """As above; a fake of a view is given its device once more when it is there."""

        def new(kind: Any, mode: Any, elem: Any, device: Any, *rest: Any, **options: Any) -> Any:
            return _new(kind, mode, elem, instead(torch.device(device)) or device, *rest, **options)

        def place(fake: Any, device: torch.device) -> None:
            vars(fake)["fake_device"] = instead(device) or device

        def device_of(fake: Any) -> torch.device:
            device: torch.device = vars(fake)["fake_device"]
            return device

        return [(FakeTensor, "__new__", staticmethod(new)), (FakeTensor, "fake_device", property(device_of, place))]


forget_fakes: Callable[[], None] = FakeTensorMode.cache_clear
"""Forgets the results of operators on fakes, which are remembered by the device in Python."""
CONVOLUTION_FORMAT = "_conv_determine_backend_memory_format"
"""Name of the function of `compiled` that gives the layout of a convolution on fakes."""
is_functional: Callable[[Any], bool] = torch._is_functional_tensor
"""Tells whether a tensor is a wrapper of functionalization."""

# --- Inductor

functorch_config: Any = _functorch_config
"""Settings of AOTAutograd."""
inductor_config: Any = _inductor_config
"""Settings of Inductor."""
compilation: Any = compile_fx
"""The module with Inductor's two entry points:"""
COMPILE_GRAPH = "compile_fx"
"""the name of that which Dynamo calls,"""
COMPILE_INNER = "compile_fx_inner"
"""and of that which lowers one graph of AOTAutograd."""
Lowering: Any = GraphLowering
"""One graph while Inductor lowers it."""
LOWER_NODE = "run_node"
"""Name of its function that lowers one node."""
lower_node: Callable[..., Any] = GraphLowering.run_node
"""The function of that name."""
MAKE_MODULE = "_compile_to_module"
"""Name of its function that writes and imports the module of generated code."""
make_module: Callable[[Any], Any] = GraphLowering._compile_to_module
"""The function of that name."""
CompiledGraph: Any = output_code.CompiledFxGraph
"""The compiled code of one graph; of a graph without kernels there is a function in its place."""
SystemCache: Any = CacheBase
"""Results of autotuning, by a name for the GPU and the version of Triton."""
CodeCache: Any = PyCodeCache
"""Modules of generated code, by the path of their file."""
LOAD = "load_by_key_path"
"""Name of its function that imports such a module."""
load_module: Callable[..., Any] = PyCodeCache.load_by_key_path.__func__  # type: ignore[attr-defined]
"""The function of that name."""
scheduler: Any = _scheduler
"""The module that decides what is fused."""
Compiler: Any = AsyncCompile
"""Makes kernels of their sources."""
Kernel: Any = TritonKernel
"""One kernel of Triton, while its source is generated."""
SplitScanKernel: Any = TritonSplitScanKernel
"""A kernel whose blocks sum up one after the other, each with the sums of those before it."""
scan: Callable[..., Any] = TritonSplitScanKernel.scan
"""Its method that sums up, and takes the workspace for those sums."""
reproductions: Any = after_aot
"""The module that writes each graph as a program, for PyTorch's logs; it starts `nvcc` for a comment in it."""
WRITE_PROGRAM = "save_graph_repro"
"""Name of the function of `reproductions` that does so."""
hints: Any = _hints
"""Facts about kernels and devices."""
attribute_users: tuple[Any, ...] = (hints, triton_utils)
"""Modules that have `AttrsDescriptorWrapper` of Triton."""
cudagraph_pools: Any = cudagraph_trees
"""The module with the pools of CUDA graphs; its import fails while a GPU is simulated."""
cudagraph_selection: Any = compile_fx
"""The module whose `cudagraphify` makes a CUDA graph of compiled code."""
cudagraph_results: Any = output_code
"""The module that has this done, or says why not, once code is compiled."""
cudagraph_checks: Any = cudagraph_utils
"""The module that asks if CUDA graphs are possible."""
extern_kernels: Any = select_algorithm.extern_kernels
"""Kernels that generated code calls by name."""
benchmarker: Any = benchmarking.benchmarker
"""Times kernels where several would do: in torch 2.10 also two of ATen's."""
Choices: Any = select_algorithm.AlgorithmSelectorCache
"""The class that compares kernels of one operator; its `benchmark_choice` makes examples and times one of them."""
padding_choice: Any = pad_mm
"""The module that pads operands of matrix products, if that proves faster."""
PADS = "_should_pad" if hasattr(pad_mm, "_should_pad") else "_should_pad_bench"
"""Name of its function that times a product; the second is torch 2.10's."""
is_compute_bound: Callable[[int, int, int, torch.dtype], bool] = pad_mm.is_mm_compute_bound
"""Tells whether a product is one that Inductor would time with and without padding."""
alignment_of: Callable[[torch.Tensor], int] = pad_mm.get_alignment_size
"""Number of elements of which the sizes of a tensor should be multiples."""
padded_by: Callable[[int, int], int] = pad_mm.get_padded_length
"""Number of elements by which a size falls short of a multiple."""
vector_instructions: Any = cpu_vec_isa
"""The module that asks which vector instructions a CPU has, with the help of a C++ compiler."""
run_with_state: Any = graphsafe_run_with_rng_state
"""The operator that runs another with a given random state."""

# --- Modules and CUDA

DEVICE_GUARD = "_DeviceGuard"
"""Name of the class of `torch.cuda` with which generated code changes the device."""
