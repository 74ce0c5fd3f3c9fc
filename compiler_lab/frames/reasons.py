"""Why a frame is left to Python: the closed catalogue, and the error that carries one of its rows.

In: a reason id and a detail about this program. Out: ``CaptureUnsupported``, which knows the user's line, the symbolic call stack
and the instruction, and becomes a ``Break``. Always holds: every id used by capture is a row here.
PyTorch's counterpart: ``torch/_dynamo/exc.py`` and ``torch/_dynamo/graph_break_registry.json``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.errors import Unsupported
from ..core.provenance import Stack, own_location
from .ir import Break


@dataclass(frozen=True)
class Reason:
    """``what`` happened, ``why`` capture stops there, ``hint``: what to write instead."""

    what: str
    why: str
    hint: str


# fmt: off
REASONS: dict[str, Reason] = {
    "unsupported-instruction": Reason(
        "the interpreter has no row for a bytecode instruction",
        "its effect is not modelled", "write the statement with simpler ones",
    ),
    "data-dependent-branch": Reason(
        "control flow depends on a tensor's value",
        "the value is known only when the graph runs", "use torch.where or masks",
    ),
    "tensor-to-python": Reason(
        "a tensor's data becomes a Python value",
        "the value is known only when the graph runs", "keep the computation in tensors",
    ),
    "numpy": Reason(
        "the program uses NumPy",
        "NumPy works on memory that a graph has not computed yet", "use the torch function of the same name",
    ),
    "side-effect": Reason(
        "the program changes an object that lives outside the frame",
        "replaying Python mutations is not modelled", "return the new value instead",
    ),
    "raise": Reason(
        "the program raises an exception",
        "Python raises it itself, with its own traceback", "nothing, if the exception is meant",
    ),
    "exception": Reason(
        "the program handles an exception in a way that is not modelled",
        "tracebacks and exception contexts are Python's", "test the condition instead",
    ),
    "op-error": Reason(
        "an operation raises on these arguments",
        "eager raises its own error when Python runs the frame", "see the error",
    ),
    "no-fake-kernel": Reason(
        "an operator does not say what shape its result has",
        "the graph goes on with that shape; Python runs the operator on real tensors, between two graphs", "register a fake kernel",
    ),
    "dynamic-shape": Reason(
        "an operation's result depends on data in its size",
        "sizes are fixed at capture", "use a form with a fixed size",
    ),
    "op-refused": Reason(
        "this operation cannot be a graph node",
        "its effect is not that of a function on tensors", "move it out of the compiled function",
    ),
    "op-argument": Reason(
        "an argument of an operation is neither a tensor nor plain data",
        "a graph node holds only these", "pass tensors, numbers, strings or nests of them",
    ),
    "metadata-mutation": Reason(
        "an operation changes a tensor's shape, strides or flags in place",
        "later stages take these as fixed", "use the form that returns a new tensor",
    ),
    "autograd-api": Reason(
        "the program talks to autograd itself",
        "gradients are built from the whole graph after capture", "call it outside the compiled function",
    ),
    "higher-order": Reason(
        "a function that becomes a graph of its own does more than compute",
        "it runs at another time, once, often or never", "give it what it needs as arguments, and return what it makes",
    ),
    "random": Reason(
        "the program draws from Python's random generator",
        "replaying its state is not modelled", "use torch's random functions",
    ),
    "unknown-callable": Reason(
        "a call of something whose effect is not known",
        "only known functions are folded or put in the graph", "move the call out of the compiled function",
    ),
    "unknown-value": Reason(
        "an operation on a value of a kind that is not modelled",
        "its behaviour is not known", "use plain Python containers and tensors",
    ),
    "attribute": Reason(
        "an attribute is read or written in a way that is not modelled",
        "its effect is not known", "use a plain attribute",
    ),
    "module-hooks": Reason(
        "a module has hooks",
        "hooks run arbitrary Python around forward", "remove the hooks or call them in forward",
    ),
    "module-created": Reason(
        "a module or a parameter is created inside the frame",
        "its registration and initial values are Python's", "create it once, outside",
    ),
    "generator": Reason(
        "a generator or coroutine is used in a way that is not modelled",
        "its frame would have to stay suspended", "build a list",
    ),
    "tensor-subclass": Reason(
        "a tensor subclass reaches the frame",
        "its behaviour is its own Python code", "pass a plain tensor",
    ),
    "tensor-layout": Reason(
        "a tensor that is not strided, dense and plain reaches the frame",
        "later stages know strided tensors only", "convert it first",
    ),
    "aliased-inputs": Reason(
        "inputs share memory and one of them is changed",
        "no guard could say how they share it, or what autograd makes of the change", "clone one of them",
    ),
    "mode": Reason(
        "a torch mode is active that changes what operations mean",
        "the graph would not mean the same without it", "leave the mode first",
    ),
    "global-state": Reason(
        "the program changes a setting of the whole process",
        "what is captured holds for the setting there is", "change it outside the compiled function",
    ),
    "context-manager": Reason(
        "a context manager that is not modelled",
        "its enter and exit run unknown code", "enter it outside the compiled function",
    ),
    "identity": Reason(
        "the program asks for an object's identity or address",
        "objects of the graph do not exist yet", "compare values",
    ),
    "output": Reason(
        "the program prints, logs or warns",
        "output must appear at each call", "print outside the compiled function",
    ),
    "return-value": Reason(
        "the frame returns something that cannot be put together again",
        "only tensors, constants, containers and existing objects are rebuilt", "return tensors",
    ),
    "recursion": Reason(
        "calls are nested too deeply",
        "every call is inlined", "use a loop",
    ),
    "loop-limit": Reason(
        "the frame executes too many instructions",
        "loops are unrolled", "move the loop into tensor operations",
    ),
    "disabled": Reason(
        "the function is marked as not to be compiled",
        "it asks to run in Python", "remove the mark",
    ),
    "import": Reason(
        "a module is imported for the first time",
        "importing runs its code", "import it at the top of the file",
    ),
    "bad-call": Reason(
        "the arguments do not fit the function",
        "Python raises its own TypeError", "see the signature",
    ),
    "no-frame": Reason(
        "this kind of callable has no frame that can be captured",
        "capture reads Python bytecode", "wrap it in a function",
    ),
    "internal-error": Reason(
        "capture itself failed",
        "this is a fault of the compiler, not of the program", "report it; the frame runs in Python meanwhile",
    ),
}
REWRITES: dict[str, tuple[str, str]] = {
    "data-dependent-branch": (
        "def f(x):\n    if x.sum() > 0:\n        return x * 2\n    return x - 1",
        "def f(x):\n    return torch.where(x.sum() > 0, x * 2, x - 1)",
    ),
    "tensor-to-python": (
        "def f(x):\n    scale = x.max().item()\n    return x / scale",
        "def f(x):\n    scale = x.max()\n    return x / scale",
    ),
    "numpy": (
        "def f(x):\n    return x * torch.from_numpy(np.hanning(3))",
        "def f(x):\n    return x * torch.hann_window(3, periodic=False)",
    ),
    "output": (
        "def f(x):\n    y = x * 2\n    print(y.shape)\n    return y.relu()",
        "def f(x):\n    y = x * 2\n    return y.relu()\n\n# around the call:\n# y = f(x); print(y.shape)",
    ),
    "random": (
        "def f(x):\n    return x * random.random()",
        "def f(x):\n    return x * torch.rand(())",
    ),
    "dynamic-shape": (
        "def f(x):\n    return x[x > 0].sum()",
        "def f(x):\n    return torch.where(x > 0, x, 0).sum()",
    ),
    "autograd-api": (
        "def f(x):\n    y = x.sin().sum()\n    y.backward()\n    return y",
        "def f(x):\n    return x.sin().sum()\n\n# around the call:\n# y = f(x); y.backward()",
    ),
    "module-created": (
        "def f(x):\n    norm = torch.nn.LayerNorm(3)\n    return norm(x)",
        "norm = torch.nn.LayerNorm(3)\n\ndef f(x):\n    return norm(x)",
    ),
    "global-state": (
        "def f(x):\n    torch.use_deterministic_algorithms(True)\n    return x * 2",
        "def f(x):\n    return x * 2\n\n# around the call:\n# torch.use_deterministic_algorithms(True); f(x)",
    ),
    "unknown-callable": (
        "def f(x):\n    start = time.time()\n    return x * 2, start",
        "def f(x):\n    return x * 2\n\n# around the call:\n# start = time.time(); y = f(x)",
    ),
    "identity": (
        "def f(x):\n    return x * (id(x) % 2)",
        "def f(x, odd):\n    return x * odd\n\n# around the call:\n# f(x, id(x) % 2)",
    ),
    "disabled": (
        "@torch.compiler.disable\ndef part(x):\n    return x + 1\n\ndef f(x):\n    return part(x) * 2",
        "def part(x):\n    return x + 1\n\ndef f(x):\n    return part(x) * 2",
    ),
}
"""For some reasons, by id: a small program that is left to Python for it, and one that says the same and is captured whole."""
# fmt: on


class CaptureUnsupported(Unsupported):
    """The frame is left to Python. ``stack`` is the symbolic call stack, ``instruction`` as dis names it."""

    def __init__(self, reason: str, detail: str, stack: Stack = (), instruction: str = "") -> None:
        row = REASONS[reason]
        self.stack, self.instruction = stack, instruction
        super().__init__(f"{row.what}: {detail}" if detail else row.what, reason=reason, where=own_location(stack), why=row.why, hint=row.hint)

    def as_break(self) -> Break:
        return Break(self.reason, self.what, self.instruction, self.stack, self.hint)
