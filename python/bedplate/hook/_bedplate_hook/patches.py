"""What to do with each module of __init__.TARGETS once its code has run.

Each function here is one line of dispatch; the work is in the module it names. They are imported
late so that a process pays only for the parts it uses.
"""


def torch_imported(torch):
    from . import process

    process.torch_imported(torch)


def serialization(module):
    from . import checkpoint

    checkpoint.patch_serialization(module)


def distributed_checkpoint(module):
    from . import checkpoint

    checkpoint.patch_distributed(module)


def safetensors(module):
    from . import checkpoint

    checkpoint.patch_safetensors(module)


def autograd(module):
    from . import training

    training.patch_autograd(module)


def optimizer(module):
    from . import training

    training.patch_optimizer(module)


def cuda(module):
    from . import device

    device.patch_cuda(module)


def dataloader(module):
    from . import loader

    loader.patch_dataloader(module)


def fetch(module):
    from . import loader

    loader.patch_fetch(module)


def worker(module):
    from . import loader

    loader.patch_worker(module)


def stateful_dataloader(module):
    from . import loader

    loader.patch_stateful_dataloader(module)


def stateful_worker(module):
    from . import loader

    loader.patch_worker(module)


def spawn(module):
    from . import crash

    crash.patch_spawn(module)


def collectives(module):
    from . import collectives as part

    part.patch(module)


def ddp(module):
    from . import ddp as part

    part.patch(module)
