"""Where the programs are that are run, and which libraries of NVIDIA's the machine has for them."""

import glob
import json
import os
import pathlib
import shutil
import site
import sys

# What NVIDIA's libraries are called in words.
NAMES = {"libcudart": "the CUDA runtime", "libcublasLt": "cuBLASLt", "libcublas": "cuBLAS", "libcudnn": "cuDNN",
         "libnccl": "NCCL", "libnvrtc": "NVRTC", "libcupti": "CUPTI"}


def name_of(library):
    return NAMES.get(library.split(".")[0], library)


def library_folders():
    """Folders that may hold NVIDIA's libraries, the first ones preferred: those that the environment names, Python's wheels,
    toolkits, the system's."""
    found = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    packages = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    for folder in packages:
        found += sorted(glob.glob(f"{folder}/nvidia/*/lib"))
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"), reverse=True),
                 "/opt/cuda"):
        if home:
            found += [f"{home}/lib64", f"{home}/lib", f"{home}/targets/x86_64-linux/lib", f"{home}/extras/CUPTI/lib64"]
    found += ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib", "/usr/local/lib", "/usr/local/nvidia/lib64",
              "/usr/local/nvidia/lib"]
    return list(dict.fromkeys(folder for folder in found if folder and os.path.isdir(folder)))


class Place:
    """A bundle (it has a bundle.json), or a source tree with a folder of built programs."""

    def __init__(self, root, programs=None):
        self.root = pathlib.Path(root).resolve()
        about = self.root / "bundle.json"
        self.bundle = json.loads(about.read_text(encoding="utf-8")) if about.exists() else None
        self.programs = pathlib.Path(programs) if programs else self.root / "bin"
        self.libraries, self.missing = {}, []
        self.environment = self.make_environment()

    def make_environment(self):
        """Of programs: libraries that are found, stand-ins for those that are not, Open MPI where it lies."""
        environment = {**os.environ, "LOCKSTEP_SOURCE_DIR": str(self.root), "OMP_WAIT_POLICY": "passive",
                       "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
                       "OMPI_MCA_plm": "isolated"}
        folders = library_folders()
        if self.bundle:
            environment["LD_LIBRARY_PATH"] = ":".join([str(self.root / "mpi" / "lib"), *self.found_folders(folders)])
            environment.update(self.mpi_environment())
            if any(library.startswith("libnccl") for library in self.missing):
                environment["LOCKSTEP_COMM"] = "self"  # one rank needs no NCCL
        return environment

    def found_folders(self, folders):
        """The folders of the libraries that the bundle's programs need."""
        used = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
        for library in self.bundle["needs"]:
            holder = next((folder for folder in folders if os.path.exists(f"{folder}/{library}")), None)
            if holder:
                self.libraries[library] = holder
            else:
                holder = str(self.root / "stand-in" / library)
                if library in self.bundle["carries"]:
                    self.libraries[library] = "the bundle"
                else:
                    self.missing.append(library)
            used.append(holder)
        used += [folder for folder in folders if os.path.exists(f"{folder}/libcuda.so.1")][:1]
        return list(dict.fromkeys(used))

    def mpi_environment(self):
        """Open MPI looks for its parts where it was installed, unless it is told."""
        home = self.root / "mpi"
        if not home.exists():
            return {}
        return {"PATH": f"{home}/bin:{os.environ.get('PATH', '')}", "OPAL_PREFIX": str(home), "OPAL_BINDIR": f"{home}/bin",
                "OPAL_LIBDIR": f"{home}/lib", "OPAL_PKGLIBDIR": f"{home}/plugins", "OPAL_PKGDATADIR": f"{home}/share",
                "OPAL_DATADIR": f"{home}/share", "OPAL_SYSCONFDIR": f"{home}/etc", "PMIX_INSTALL_PREFIX": str(home),
                "PMIX_MCA_mca_base_component_path": f"{home}/pmix", "OMPI_MCA_mca_base_component_path": f"{home}/plugins"}

    def program(self, name):
        """The path of a program; None where it was not built."""
        path = self.programs / name
        return path if path.exists() else None

    def ranks(self, count, command, per_rank=None):
        """The command that starts so many ranks; None without mpirun. `per_rank` is set to each rank's number."""
        mpirun = shutil.which("mpirun", path=self.environment.get("PATH"))
        if not mpirun:
            return None
        words = [str(word) for word in command]
        if per_rank:
            words = ["sh", "-c", f'{per_rank}=rank$OMPI_COMM_WORLD_RANK exec "$@"', "sh", *words]
        return [mpirun, "-np", str(count), "--bind-to", "none", *words]

    def peer_environment(self):
        """Of programs that are not ours: the machine's own."""
        return dict(os.environ)
