"""What is decided on a line, which its comment names: what readers of ported packages found wrong, each kind once."""

from __future__ import annotations

import re
import textwrap

import pytest

from anyaccel.migrate.source import migrate_source

CASES = {
    "an option of another library, in a dictionary": """
        from pytorch_grad_cam import GradCAM
        def run(model, wanted):
            options = dict(model=model)
            options["use_cuda"] = wanted and torch.cuda.is_available()  # reported
            return GradCAM(**options)
        """,
    "a model that becomes DataParallel where CUDA is": """
        from torch.nn import DataParallel
        class Pair:
            def __init__(self, first, second, device=torch.device("cpu")):
                if device == torch.device("cuda"):  # left
                    self.first = DataParallel(first)
                    self.second = DataParallel(second)
                self.other = second
                if torch.cuda.is_available():  # rewritten
                    self.other = DataParallel(second).cuda()  # rewritten
        """,
    "a setting that is stored, before DataParallel and elsewhere": """
        from torch.nn import DataParallel
        use_cuda = torch.cuda.is_available()  # rewritten
        def make(model, x):
            if use_cuda:
                model = DataParallel(model)
            return model(x.cuda() if use_cuda else x)  # rewritten
        """,
    "a default that a method, a property or a function gets": """
        class Net:
            def __init__(self, device="cuda:0"):  # rewritten: device_name(0)
                self.place(device)
                self.device = device
            def place(self, device):
                self.to(torch.device(device if torch.cuda.is_available() else "cpu"))  # rewritten
            @property
            def device(self):
                return self._device
            @device.setter
            def device(self, device):
                self._device = torch.device(device if torch.cuda.is_available() else "cpu")  # rewritten
            def elsewhere(self, device):
                self.to(torch.device(device if torch.cuda.is_available() else "cpu"))  # left
        def place(net):
            return move(net, "cuda")  # rewritten
        def move(net, device):
            return net.to(device if torch.cuda.is_available() else "cpu")  # rewritten
        """,
    "devices that the backward pass of a function forks": """
        class Checkpoint(torch.autograd.Function):
            @staticmethod
            def forward(ctx, function, *inputs):
                ctx.had_cuda = False
                if torch.cuda._initialized:  # rewritten
                    ctx.had_cuda = True
                    ctx.devices = list({x.get_device() for x in inputs if x.is_cuda})  # rewritten
                return function(*inputs)
            @staticmethod
            def backward(ctx, *grads):
                devices = []
                if ctx.had_cuda:
                    devices = ctx.devices
                with torch.random.fork_rng(devices=devices):  # rewritten: device_type=get_accelerator().device_name()
                    return grads
        """,
    "what does not work on CUDA": """
        def explain(model, x, device):
            if device.type == "cuda":  # reported
                print("This model does not work with shap on CUDA")
                return None
            if x.is_cuda:  # reported
                raise ValueError("CUDA tensors are not supported")
            return model(x)
        def use(model, x):
            if torch.cuda.is_available():  # rewritten
                model = model.cuda()  # rewritten
            else:
                print("CUDA is not supported here")
            return model(x)
        """,
    "a library for CUDA in a function that the branch calls": """
        import transformer_engine.pytorch as te
        def fast(q):
            from flash_attn import flash_attn_func
            return flash_attn_func(q)
        def layer(q):
            return te.Linear(1, 1)(q)
        def either(q):
            try:
                from flash_attn import flash_attn_func
            except ImportError:
                return q
            return flash_attn_func(q)
        class Attention:
            def fast(self, q):
                import bitsandbytes
                return bitsandbytes.functional.gelu(q)
            def forward(self, q):
                return self.fast(q) if q.is_cuda else q  # reported
        def forward(q):
            if q.device.type == "cuda":  # reported
                return fast(q)
            if q.is_cuda:  # reported
                return layer(q)
            return q
        def choose(q):
            return either(q) if q.is_cuda else q  # rewritten
        """,
    "a device of a tensor or a model, under a number's name": """
        def evaluate(model, loader):
            gpu = next(model.parameters()).device
            return [model(x.to(gpu)) for x in loader]
        def use(x, gpu):
            return x.cuda(gpu)  # rewritten: device_name(gpu)
        """,
    "a test that skips itself without CUDA": """
        import pytest
        def test_it():
            if not torch.cuda.is_available():  # left
                pytest.skip("needs CUDA")
            device = torch.device("cuda")  # left
            torch.cuda.synchronize(device)  # left
        """,
    "a device beside another value": """
        class Net:
            def __init__(self, number):
                self.gpu, self.device = True, "cuda:" + str(number)  # rewritten: True, get_accelerator().device_name(number)
                self.kind, self.name = True, "cuda:" + str(number)  # reported
        """,
    "an option of the program's own function, in a dictionary": """
        def make(use_cuda):
            return torch.ones(1).cuda() if use_cuda else torch.ones(1)  # rewritten
        def run(wanted):
            options = {}
            options["use_cuda"] = wanted and torch.cuda.is_available()  # rewritten
            return make(**options)
        """,
    "a setting beside the name of another library": """
        from .settings import Provider, SpeechToText
        stt = SpeechToText(provider=Provider.FASTER_WHISPER, device="cuda")  # reported
        tts = SpeechToText(provider=Provider.LOCAL, device="cuda")  # rewritten
        """,
    "the name of a backend of Triton's": """
        def get_available_device():
            try:
                return triton.runtime.driver.active.get_current_target().backend
            except Exception:
                return "cuda"  # reported
        """,
    "a record under a key that names CUDA": """
        def facts():
            found = {}
            found["cuda_available"] = bool(torch.cuda.is_available())  # left
            return found
        """,
    "nvidia-smi in the branch of a question": """
        import subprocess
        def pick():
            if torch.cuda.is_available():  # reported
                free = subprocess.check_output(["nvidia-smi", "--query-gpu=memory.free"]).split()
                return torch.device(f"cuda:{free.index(max(free))}")  # rewritten
            return torch.device("cpu")
        """,
    "nvidia-smi by its path, in a line of commands, and in a message": """
        import os
        def show(i, model):
            if torch.cuda.is_available():  # reported
                os.system("/usr/bin/nvidia-smi -L")
        def watch(i, model):
            if torch.cuda.is_available():  # reported
                os.popen(f"date; nvidia-smi -i {i}")
        def tell(model):
            if torch.cuda.is_available():  # rewritten
                print("nvidia-smi shows how much memory this takes")
                model.cuda()  # rewritten
        """,
    "a library that claims NVIDIA's devices": """
        from safe_gpu import safe_gpu
        def get_device(wanted):
            if wanted == "gpu":
                safe_gpu.claim_gpus()
                return torch.device("cuda")  # left
            return torch.device("cpu")
        """,
    "the handle of a stream": """
        def show(copier):
            torch.save(copier, "path")
            return copier.stream.cuda_stream  # reported
        """,
    "the handle of the stream that a reported call returns, once": """
        def show(library):
            library.launch(torch.cuda.current_stream().cuda_stream)  # reported
        """,
    "a constant of another file that is a flag for CUDA": """
        from .flags import FLAG_CPU, FLAG_CUDA
        def row(dest):
            is_cuda = dest.is_cuda  # reported
            return FLAG_CUDA if is_cuda else FLAG_CPU
        """,
    "a number that is a flag for CUDA": """
        _KIND_OF_CUDA = 2
        def row(dest):
            return _KIND_OF_CUDA if dest.is_cuda else 1  # reported
        """,
    "a loop over devices with a function that may need one": """
        from lib import has_context
        def wait():
            for i in range(torch.cuda.device_count()):  # rewritten: range(get_accelerator().device_count() if
                if has_context(i):
                    torch.cuda.synchronize(i)  # rewritten
        """,
    "a loop over devices with a question that any of them answers": """
        def wait():
            for i in range(torch.cuda.device_count()):  # rewritten: range(get_accelerator().device_count())
                if isinstance(i, int):
                    torch.cuda.synchronize(i)  # rewritten
        """,
    "elements of a list of integers": """
        def main(text):
            devices = [int(each) for each in text.split(",")]
            torch.cuda.synchronize(torch.device(devices[0]))  # rewritten: device_name(devices[0])
            for each in devices:
                yield torch.zeros(3, device=torch.device(each))  # rewritten: device_name(each)
        """,
    "elements of a list that a caller gives": """
        def main(devices):
            return torch.zeros(3, device=torch.device(devices[0]))
        """,
    "options of events that have their defaults": """
        start = torch.cuda.Event(blocking=False, enable_timing=True, interprocess=False)  # rewritten: Event(enable_timing=True)
        end = torch.cuda.Event(blocking=False)  # rewritten: Event()
        last = torch.cuda.Event(blocking=True)  # rewritten: Event(blocking=True)
        """,
    "an event that processes share": """
        shared = torch.cuda.Event(interprocess=True)  # reported
        """,
    "empty memory that is pinned": """
        def make(n):
            return torch.empty(n, dtype=torch.int, device="cpu", pin_memory=True)  # rewritten: pin_empty(n, dtype=torch.int,
        """,
    "a message before an index": """
        print("Current cuda device is:", torch.cuda.current_device())  # rewritten: "Current accelerator device is:"
        """,
    "an assertion that names what it needs": """
        assert torch.cuda.is_available(), "CUDA required"  # rewritten: "Accelerator required"
        """,
    "numbers of devices or the CPU": """
        from .tools import select_device
        def load(device=None):
            device = select_device("0" if torch.cuda.is_available() else "cpu")  # reported
            return device
        """,
    "an assertion on the number of devices where only a GPU's model is wrapped": """
        from torch.nn.parallel import DistributedDataParallel as DDP
        def train(model, device, rank):
            cuda = device.type != "cpu"
            if cuda and rank != -1:
                model = DDP(model, device_ids=[rank])  # rewritten
        def main(rank):
            assert torch.cuda.device_count() > rank  # rewritten: != "cpu" else 0
        """,
    "an assertion on the number of devices": """
        from torch.nn.parallel import DistributedDataParallel as DDP
        def train(model, device, rank):
            model = DDP(model, device_ids=[rank])  # rewritten
        def main(rank):
            assert torch.cuda.device_count() > rank  # rewritten: assert get_accelerator().device_count() > rank
        """,
    "a precision that falls to a third choice by another comparison": """
        def choose(device):
            return torch.bfloat16 if device == "cuda" and torch.cuda.is_bf16_supported() else (  # rewritten: != "cpu"
                torch.float16 if device == "cuda" else torch.float32)  # rewritten
        """,
    "a precision that falls to a third choice by an option": """
        def choose(wants_half):
            return torch.bfloat16 if torch.cuda.is_bf16_supported() else (  # rewritten: != "cpu"
                torch.float16 if wants_half else torch.float32)
        """,
    "a precision that falls to float16": """
        def choose(is_old):
            return torch.bfloat16 if torch.cuda.is_bf16_supported() else (  # rewritten: is_bf16_supported() else
                torch.half if is_old else torch.float16)
        """,
    "a list of devices before a comparison that is reported": """
        def load(settings):
            if settings.device not in {"auto", "cpu", "cuda"}:  # reported
                raise ValueError(settings.device)
            device = settings.device
            if device == "cuda":  # reported
                launch_kernels()
        """,
    "a list of devices in another function than a reported comparison": """
        def check(request):
            assert request.device in ("cpu", "cuda")  # reported
        def load(request):
            if request.device == "cuda":  # reported
                launch_kernels()
        """,
    "a list of devices before a comparison of another device": """
        def check(request):
            assert request.device in ("cpu", "cuda")  # rewritten
        def load(x):
            if x.device.type == "cuda":  # reported
                launch_kernels()
        """,
    "an option of torch's own object, by the name of a setting": """
        def make(device, config):
            if config.enabled:
                torch.cuda.get_device_capability()  # reported
            return torch.amp.GradScaler("cuda", enabled=device.type == "cuda")  # rewritten
        """,
    "a set of a program's own names": """
        def load(device):
            if device not in {"cuda", "ascend"}:  # reported
                device = "ascend"
            return load_state(device)
        """,
    "an index that may be None, for DDP": """
        from torch.nn.parallel import DistributedDataParallel as DDP
        def wrap(model: torch.nn.Module, device_id: int | None = None):
            if device_id is not None:
                model = model.to(device_id)  # rewritten
            return DDP(model, device_ids=[device_id] if device_id is not None else None)  # rewritten: None if
        """,
    "an index that is annotated": """
        class Stager:
            def __init__(self):
                self.device: int | None = torch.cuda.current_device()  # rewritten: = get_accelerator().current_device()
        """,
    "a record under a key that names CUDA, of a program that may lack torch": """
        def facts():
            return {"cuda_available": bool(torch and torch.cuda.is_available()), "ok": True}  # left
        """,
    "a constant that is an option of a library": """
        def load():
            from cellpose import models
            if torch.cuda.is_available():  # reported
                gpu = True
            else:
                gpu = False
            return models.Cellpose(gpu=gpu)
        """,
    "a constant that is an option of the program's own": """
        def make(gpu):
            return torch.ones(1).cuda() if gpu else torch.ones(1)  # rewritten
        def load():
            if torch.cuda.is_available():  # rewritten
                gpu = True
            else:
                gpu = False
            return make(gpu=gpu)
        """,
    "two choices of a device, one by a stored answer": """
        def detect():
            cuda_available = torch.cuda.is_available()  # reported
            version = None
            if cuda_available:
                version = torch.version.cuda
            if cuda_available:
                device = "cuda"  # rewritten
            else:
                device = "cpu"
            return {"device": device, "version": version}
        def best_device():
            if torch.cuda.is_available():  # reported
                return torch.device("cuda")  # rewritten
            return torch.device("cpu")
        """,
    "a test of two devices that differ": """
        def test_mismatch_device_cuda_cpu():
            values = torch.ones(3).to("cuda:0")  # reported
            with pytest.raises(ValueError):
                add(values, torch.ones(3))
        """,
    "autocast beside a scaler of a base class": """
        from torch import autocast
        class Trainer(Base):
            def step(self, x):
                with autocast(self.device.type, enabled=True) if self.device.type == "cuda" else dummy():  # reported
                    loss = self.network(x)
                if self.grad_scaler is not None:
                    self.grad_scaler.scale(loss).backward()
        """,
    "autocast without a scaler": """
        from torch import autocast
        class Validator(Base):
            def validate(self, x):
                with autocast(self.device.type, enabled=True) if self.device.type == "cuda" else dummy():  # rewritten
                    return self.network(x)
        """,
    "a class of a device layer, by the name that it is given": """
        class CudaBackend(BackendRuntime):
            name = "cuda"  # left
            def is_available(self):
                return torch.cuda.is_available()  # left
        """,
    "the backends that a docstring names": '''
        def initialize(backend=None):
            """Make the group.  # rewritten: `None` selects the accelerator's backend.

            backend: `None` selects `"nccl"` when CUDA is available and `"gloo"` otherwise.
            """
            if backend is None:
                backend = "nccl" if torch.cuda.is_available() else "gloo"  # rewritten
            return backend
        ''',
    "a guard in a library that stores its message first": """
        def measure(model, inputs):
            if not torch.cuda.is_available():  # rewritten: if get_accelerator().device_name() == "cpu":
                msg = "No GPU"
                raise RuntimeError(msg)
            before = torch.cuda.memory_allocated()  # rewritten
            return model(inputs) / before
        """,
    "a way for the CPU that stores the device first, which is no guard": """
        def pick(model):
            if not torch.cuda.is_available():  # rewritten: if get_accelerator().device_name() == "cpu":
                device = "cpu"
                return device
            return model.to("cuda")  # rewritten
        """,
    "the device of autocast, as a class keeps it": """
        class SafeAutocast:
            def __init__(self, device_type: str = "cuda", dtype=torch.float16):  # reported
                self.device_type = device_type
                self.dtype = dtype
            def __enter__(self):
                self.context = torch.autocast(device_type=self.device_type, dtype=self.dtype)
                return self.context.__enter__()
        """,
    "hints for CUDA that an error collects": """
        class DeviceError(Exception):
            def __init__(self, device, hints):
                if "cuda" in device.lower():  # left
                    hints.extend(["Ensure that CUDA is installed", "Try the CPU first"])
                super().__init__(device, hints)
        """,
    "the index of a CUDA device that was asked for": """
        def validate(device):
            if device.startswith("cuda"):  # left
                if not torch.cuda.is_available():  # left
                    raise ValueError(device)
                if device != "cuda" and ":" in device:  # left
                    index = int(device.split(":")[1])
                    if index >= torch.cuda.device_count():  # left
                        raise ValueError(device)
        """,
    "the devices beside a group whose backend is reported": """
        def setup(state, local_rank, backend=None):
            if backend is None:
                if torch.cuda.is_available():  # reported
                    backend = "nccl"  # reported
                else:
                    backend = "gloo"
            state.backend = backend
            torch.distributed.init_process_group(backend=backend)
            if torch.cuda.is_available():  # reported
                torch.cuda.set_device(local_rank)  # rewritten
                state.device = torch.device(f"cuda:{local_rank}")  # rewritten
        """,
    "the devices beside a group whose backend is rewritten": """
        def setup(state, local_rank):
            torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")  # rewritten
            if torch.cuda.is_available():  # rewritten
                torch.cuda.set_device(local_rank)  # rewritten
                state.device = torch.device(f"cuda:{local_rank}")  # rewritten
        """,
    "devices by their number, for code that stays": """
        class Fork:
            def __init__(self, devices=None):
                self.states = {}
                if devices is None:
                    devices = range(torch.cuda.device_count())  # reported
                for device in map(torch.cuda.device, devices):  # reported
                    self.states[device.idx] = 0
            @classmethod
            def from_tensors(cls, *tensors):
                return cls(each.device for each in tensors if each.is_cuda)  # reported
        """,
    "a class of a device layer, by the module that it is given": """
        class TorchLibrary(Library):
            def move(self, x, device):
                return x.to(f"cuda:{device.index}")  # left
            def count(self):
                return self.module.cuda.device_count()
            def stream(self):
                return self.module.cuda.Stream()
            def synchronize(self):
                self.module.cuda.synchronize()
        """,
    "a caller's device, by default this program's": """
        def load(model, device: str = "cuda"):  # rewritten
            kind = device if torch.cuda.is_available() else "cpu"  # rewritten: if torch.device(device).type == get_accelerator()
            return model.to(kind)
        """,
    "a caller's device of any type, by default this program's": """
        def load(model, device="cuda"):  # rewritten
            kind = device if torch.cuda.is_available() else "cpu"  # rewritten: device if get_accelerator().device_name() != "cpu"
            return model.to(kind)
        """,
    "quantization, which bitsandbytes does": """
        def load(model, device, quantize):
            return model.load(kind=quantize if device == "cuda" else None).to(device)  # reported
        """,
    "Apple's GPU, and a message if torch was built without it": """
        def load(model):
            if torch.cuda.is_available():  # reported
                device = "cuda:0"  # rewritten
            elif torch.backends.mps.is_available():
                if not torch.backends.mps.is_built():
                    print("this torch has no MPS")
                else:
                    device = "mps"
            else:
                device = "cpu"
            return model.to(device)
        """,
    "the module of CUDA, or what a caller gives instead": """
        class Leases:
            def __init__(self, cuda=None):
                self._cuda = cuda
            def lease(self, device):
                cuda = self._cuda
                if str(device).split(":")[0] == "cuda":  # reported
                    if cuda is None:
                        from torch import cuda  # left
                    return cuda.current_stream(device)  # reported
                return None
        """,
    "the module of CUDA, or what a caller passes instead": """
        def lease(device, cuda=None):
            if cuda is None:
                from torch import cuda  # left
            return cuda.current_stream(device)  # reported
        """,
    "an option whose choices are several accelerators": """
        def main(parser):
            parser.add_argument(
                "--device",
                default="cuda",  # rewritten
                choices=["cpu", "cuda", "mps"],  # reported
            )
            parser.add_argument(
                "--other-device",
                default="cuda",  # reported
                choices=["cpu", "npu", "cuda"],  # left
            )
        """,
    "a branch that only sets CUDA's variable": """
        def main(args):
            if "cuda" in args.device:  # left
                os.environ["CUDA_VISIBLE_DEVICES"] = str(args.gpu)
            if "cuda" in args.device:  # rewritten
                os.environ["CUDA_VISIBLE_DEVICES"] = str(args.gpu)
                args.pin = True
        """,
    "a number of devices that another function passes to a trainer": """
        import pytorch_lightning as pl
        def check():
            num_devices = torch.cuda.device_count()  # reported
            others = torch.cuda.device_count()  # rewritten
            print(others)
            return num_devices
        def trainer(num_devices):
            return pl.Trainer(gpus=num_devices)
        """,
    "a number of devices, one of which each new process gets": """
        def start(command, number):
            env = os.environ.copy()
            env["CUDA_VISIBLE_DEVICES"] = str(number)
            return subprocess.Popen(command, env=env)
        def main(command):
            for number in range(torch.cuda.device_count()):  # reported
                start(command, number)
        """,
    "a number of devices in an attribute that is compared with one": """
        class Adam:
            def __init__(self):
                self.world_size = torch.cuda.device_count()  # rewritten: device_count() if get_accelerator()
            def step(self):
                if self.world_size > 1:
                    gather([None for _ in range(self.world_size)])
        """,
    "a default where another file imports torch": """
        from .optional import torch
        def setup(rank, backend="nccl"):  # reported
            torch.distributed.init_process_group(backend, rank=rank)
        """,
    "an error by both of its names": """
        def run(f):
            try:
                return f()
            except (torch.cuda.OutOfMemoryError, torch.OutOfMemoryError):  # left
                raise
        """,
}  # fmt: skip
_SAID = re.compile(r"  # (rewritten|reported|left)(?:: (.*))?$")


@pytest.mark.parametrize("name", CASES)
def test_a_line_gets_the_outcome_that_its_comment_names(name: str) -> None:
    lines = f"import torch\n{textwrap.dedent(CASES[name]).lstrip()}".splitlines()
    said = {number: found for number, line in enumerate(lines, 1) if (found := _SAID.search(line))}
    done = migrate_source("".join(f"{_SAID.sub('', line)}\n" for line in lines))
    sites = [each for each in done.sites if each.rule != "env"]
    assert {each.line for each in sites} == set(said)
    for number, found in said.items():
        outcomes = {each.outcome.value for each in sites if each.line == number}
        assert outcomes == {found[1]}, (lines[number - 1], outcomes)
        assert (found[2] or "") in done.new
    reported = [each.line for each in sites if each.outcome.value == "reported"]
    assert len(reported) == len(set(reported))


OPTIONAL = "try:\n    import torch\nexcept ImportError:\n    torch = None\n"
NEEDED = "try:\n    import torch\nexcept ImportError as error:\n    raise RuntimeError('install torch') from error\n"
IMPORTS = {
    OPTIONAL: "    import torch\n    from anyaccel import get_accelerator\nexcept",
    NEEDED: "from anyaccel import get_accelerator\n\ntry:",
    f"{OPTIONAL}from torch import nn\n": "\nfrom anyaccel import",
}


def test_a_guard_that_cleans_up_before_it_exits_still_stops_a_cpu() -> None:
    code = """
        import sys
        import torch
        def parse(wanted, log_file):
            if wanted != "cpu":
                if not torch.cuda.is_available():
                    print("CUDA is not available")
                    log_file.close()
                    sys.exit(1)
                return torch.ones(1).cuda()
    """
    assert 'if get_accelerator().device_name() == "cpu":' in migrate_source(textwrap.dedent(code)).new


def test_a_message_says_the_number_that_the_question_before_it_compares() -> None:
    code = """
        import torch
        def parse(i, model):
            if i >= torch.cuda.device_count():
                print(f"{i} is too large: {torch.cuda.device_count()} GPUs")
            print(f"{torch.cuda.device_count()} GPUs")
            return model.cuda(i)
    """
    new = migrate_source(textwrap.dedent(code)).new
    assert new.count("torch.cuda.device_count()") == 1
    assert new.count("get_accelerator().device_count() if get_accelerator().device_name() != ") == 2


def test_what_a_programs_own_log_function_shows_names_the_accelerator() -> None:
    code = """
        import torch
        from .records import log
        def use(i, model):
            log(f"Using CUDA device {i} - {torch.cuda.get_device_name(i)}")
            log(f"CUDA device {i}", torch.cuda.memory_allocated(i))
            return model.cuda(i)
    """
    new = migrate_source(textwrap.dedent(code)).new
    assert 'log(f"Using accelerator {i} - {get_accelerator().get_device_properties(i).name}")' in new
    assert 'log(f"CUDA device {i}", ' in new  # a figure's name


@pytest.mark.parametrize("imports", IMPORTS)
def test_a_module_that_goes_on_without_torch_goes_on_without_anyaccel(imports: str) -> None:
    done = migrate_source(f"{imports}\n\ndef f(x):\n    return x.cuda() if torch.cuda.is_available() else x\n")
    assert IMPORTS[imports] in done.new
    assert done.new.count("from anyaccel import get_accelerator\n") == 1
    assert migrate_source(done.new).new == done.new


def test_code_that_does_not_need_torch_has_the_import_without_it() -> None:
    done = migrate_source(f"{OPTIONAL}\n\ndef f(x, device='cuda'):\n    return x.to(device)\n")
    assert done.new.startswith("from anyaccel import get_accelerator\n\ntry:")


def test_cuda_of_other_modules_is_not_what_the_self_check_looks_for() -> None:
    modules = "import cupyx\nimport numba\nimport cupy as cp, paddle.device\nfrom lib import part\n"
    uses = "cp.cuda.Device(0)\nnumba.cuda.synchronize()\npaddle.device.cuda.empty_cache()\ncupyx.cuda\npart.cuda.x()\n"
    done = migrate_source(f"{modules}import torch\n{uses}")
    assert [each.line for each in done.passed_over] == [10]
