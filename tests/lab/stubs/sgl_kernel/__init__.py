"""Takes the place of SGLang's compiled kernels on a machine without a GPU.

SGLang imports names from `sgl_kernel` when it loads, and on a CPU calls only one of them: a small model in plain
PyTorch needs no compiled kernel. That one is implemented here; every other name raises when it is called.
"""


def assign_req_to_token_pool_cpu(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, *_unused):
    """Write each request's new cache locations into its row of the request-to-token table."""
    taken = 0
    for row, start, end in zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist()):
        length = end - start
        req_to_token[row, start:end] = out_cache_loc[taken : taken + length].to(req_to_token.dtype)
        taken += length


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_args, **_kwargs):
        raise NotImplementedError(f"sgl_kernel.{name} needs a GPU; the lab's CPU server must not call it")

    missing.__name__ = name
    return missing
