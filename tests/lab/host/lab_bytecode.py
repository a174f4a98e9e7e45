"""Let test hosts keep the bytecode of what Python imports from archives: a third less processor time for each module.

Ansible sends a module with all that it imports as one archive, and Python compiles what it imports from archives each
time anew. A deployment of three hosts is some 250 modules. Python reads this file by itself, by lab_bytecode.pth.
"""

import marshal
import os
import zipimport
import zlib

FOLDER = "/run/lab-bytecode"


def _compiled(path, source):
    text = source.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    name = f"{path.rpartition('.zip/')[2].replace('/', '+')}-{len(text)}-{zlib.crc32(text)}"
    kept = os.path.join(FOLDER, name)
    try:
        with open(kept, "rb") as file:
            return marshal.loads(file.read())
    except (OSError, ValueError, EOFError, TypeError):
        code = compile(text, path, "exec", dont_inherit=True)
    # Nobody but root, who reads it too.
    if os.geteuid() == 0:
        try:
            os.makedirs(FOLDER, exist_ok=True)
            new = f"{kept}.{os.getpid()}"
            with open(new, "wb") as file:
                file.write(marshal.dumps(code))
            os.replace(new, kept)
        except OSError:
            pass  # a full disk is what some tests are about
    return code


zipimport._compile_source = _compiled
