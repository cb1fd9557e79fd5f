"""What a script writes, moves and removes changes nothing of the user's, whoever writes it."""

import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from tests.script.isolated import run, tree

needs_landlock = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's guard is Linux's")


@pytest.fixture
def project(tmp_path) -> Path:
    folder = tmp_path / "project"
    (folder / "data/raw").mkdir(parents=True)
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    (folder / "data/raw/a.txt").write_text("a", encoding="utf-8")
    (folder / "checkpoint.pt").write_bytes(b"of an earlier run")
    (folder / "model.safetensors").write_bytes(b"of an earlier run")
    return folder


def test_a_script_reads_back_what_it_wrote_and_misses_what_it_removed(project):
    ran = run(
        project,
        """\
        import glob, os, pathlib, shutil
        open("log.txt", "w").write("hello")
        with open("notes.txt", "a") as file:
            file.write(" and more")
        os.makedirs("out/a/b", exist_ok=True)
        pathlib.Path("out/a/b/x.bin").write_bytes(b"12345678")
        os.replace("out/a/b/x.bin", "out/final.bin")
        shutil.rmtree("data")
        os.mkdir("data")
        print(open("log.txt").read(), open("notes.txt").read(), os.listdir("data"), os.path.exists("data/raw/a.txt"))
        print(sorted(glob.glob("**/*.bin", recursive=True)), [f for _, _, f in os.walk("out")])
        print(pathlib.Path("out/final.bin").stat().st_size, sorted(p.name for p in pathlib.Path(".").iterdir()))
        os.chdir("out")
        print(os.getcwd() == str(pathlib.Path("..").resolve() / "out"), os.path.abspath("final.bin") == os.getcwd() + "/final.bin")
        print(pathlib.Path("final.bin").read_bytes())
        """,
    )
    assert ran.stdout.splitlines() == [
        "hello mine and more [] False",
        "['out/final.bin'] [['final.bin'], [], []]",
        "8 ['checkpoint.pt', 'data', 'log.txt', 'model.safetensors', 'notes.txt', 'out', 'train.py']",
        "True True",
        "b'12345678'",
    ]
    assert ran.writes == {
        "log.txt": (5, 2),
        "notes.txt": (13, 3),
        "out/final.bin": (8, 7),
        "data/raw/a.txt": (None, 8),
    }
    assert not ran.outside
    assert ran.error is None


@needs_landlock
def test_hostile_writers_change_nothing(project):
    ran = run(
        project,
        """\
        import ctypes, io, os, posix, shutil, subprocess, sys
        here, c = os.getcwd(), ctypes.CDLL(None, use_errno=True)
        def attempt(name, function):
            try:
                print(name, function())
            except OSError as error:
                print(name, type(error).__name__, "memlint run" in str(error))
        attempt("posix", lambda: posix.unlink(here + "/notes.txt"))
        attempt("fileio", lambda: io.FileIO(here + "/notes.txt", "w"))
        attempt("rename", lambda: posix.rename("notes.txt", "other.txt"))
        attempt("unlink", lambda: c.unlink(b"notes.txt"))
        attempt("creat", lambda: c.creat(b"fresh.txt", 0o644))
        attempt("truncate", lambda: c.truncate(b"notes.txt", 0))
        attempt("mkdir", lambda: c.mkdir(b"fresh", 0o755))
        attempt("shell", lambda: subprocess.run("echo x > notes.txt", shell=True, capture_output=True).returncode)
        attempt("shell", lambda: os.system("echo x 2>/dev/null > fresh.txt") != 0)
        code = "import shutil; shutil.rmtree('data')"
        attempt("python", lambda: subprocess.run([sys.executable, "-c", code], capture_output=True).returncode)
        pid = os.fork()
        if pid == 0:
            os.truncate("notes.txt", 0)
            c.unlink(b"checkpoint.pt")
            os._exit(0)
        os.waitpid(pid, 0)
        os.truncate("notes.txt", 1)
        for name in os.listdir("."):
            shutil.rmtree(name) if os.path.isdir(name) else os.remove(name)
        print(os.listdir(here))
        shutil.rmtree(here)
        print(os.path.exists(here))
        """,
    )
    assert "files" not in ran.not_guarded
    assert ran.stdout.splitlines() == [
        *("posix PermissionError True", "fileio PermissionError True", "rename PermissionError True"),
        *("unlink -1", "creat -1", "truncate -1", "mkdir -1", "shell 2", "shell True", "python 1", "[]", "False"),
    ]
    assert ran.writes["notes.txt"][0] is None
    assert set(ran.writes) == {"notes.txt", "data/raw/a.txt", "checkpoint.pt", "model.safetensors", "train.py"}


def test_checkpoints_are_loaded_again_and_have_the_bytes_of_a_real_run(project):
    ran = run(
        project,
        """\
        import io, os, torch
        model = torch.nn.Linear(1000, 1000).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(8, 1000, device="cuda")).sum().backward()
        optimizer.step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}, "checkpoint.pt.new")
        os.rename("checkpoint.pt.new", "checkpoint.pt")
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        open("bytes.pt", "wb").write(buffer.getvalue())
        loaded = torch.load("checkpoint.pt", map_location="cuda")
        model.load_state_dict(loaded["model"])
        optimizer.load_state_dict(loaded["optimizer"])
        print(loaded["step"], loaded["model"]["weight"].device, torch.load("bytes.pt")["bias"].shape)
        torch.save(model.state_dict(), "old_format.pt", _use_new_zipfile_serialization=False)
        print(list(torch.load("old_format.pt")))
        torch.save({"x": torch.ones(3)}, open("handle.pt", "wb"))
        print(torch.load("handle.pt"))
        """,
    )
    assert ran.stdout.splitlines() == [
        "7 cuda:0 torch.Size([1000])",
        "['weight', 'bias']",
        "{'x': tensor([1., 1., 1.])}",
    ]
    parameters = 4 * 1001 * 1000
    assert 3 * parameters <= ran.writes["checkpoint.pt"][0] <= 3 * parameters + 8192
    assert parameters <= ran.writes["bytes.pt"][0] <= parameters + 8192
    assert "checkpoint.pt.new" not in ran.writes


def test_safetensors_are_saved_without_memory_and_read_again(project):
    ran = run(
        project,
        """\
        import torch
        from safetensors import safe_open
        from safetensors.torch import load, load_file, load_model, save, save_file, save_model
        model = torch.nn.Sequential(torch.nn.Linear(1000, 1000), torch.nn.BatchNorm1d(1000)).cuda()
        save_file(model.state_dict(), "model.safetensors", metadata={"format": "pt"})
        loaded = load_file("model.safetensors")
        print(loaded["0.weight"].shape, loaded["0.weight"].device, loaded["1.num_batches_tracked"])
        model.load_state_dict(loaded)
        with safe_open("model.safetensors", framework="pt", device="cuda:0") as file:
            print(file.metadata(), sorted(file.keys())[0], file.get_tensor("0.bias").device)
            print(file.get_slice("0.weight").get_shape(), file.get_slice("0.weight")[:10, :].shape)
        model[0].weight.data = torch.eye(1000).cuda()
        save_model(model, "tied.safetensors")
        whole = save({"x": torch.empty(300, 300, device="cuda")})
        print(load_model(model, "tied.safetensors"), len(whole) % 360_000 < 99, load(whole)["x"].shape)
        print(load(save({"x": torch.arange(3, device="cuda")})), load(save({"x": torch.arange(3)})))
        for tensors in ({"x": torch.zeros(3, 4, device="cuda").t()}, {"x": model[0].weight, "y": model[0].weight}):
            try:
                save_file(tensors, "model.safetensors")
            except (ValueError, RuntimeError) as error:
                print(type(error).__name__, str(error).strip()[:40])
        save_file({"real": torch.ones(2)}, "real.safetensors")
        """,
    )
    assert ran.error is None
    assert ran.stdout.splitlines() == [
        "torch.Size([1000, 1000]) cpu tensor(0)",
        "{'format': 'pt'} 0.bias cuda:0",
        "[1000, 1000] torch.Size([10, 1000])",
        "(set(), []) True torch.Size([300, 300])",
        "{'x': tensor([0, 1, 2])} {'x': tensor([0, 1, 2])}",
        "ValueError You are trying to save a non contiguous ",
        "RuntimeError Some tensors share memory, this will lea",
    ]
    scratch = project.with_name("project-run") / "exchange/scratch"
    with safe_open(f"{scratch}{project}/model.safetensors", framework="pt") as file:  # the library's own reader
        assert file.get_tensor("0.weight").shape == (1000, 1000)
        assert file.get_tensor("1.weight").tolist() == [1.0] * 1000
        assert file.metadata() == {"format": "pt"}
    assert ran.writes["model.safetensors"][0] == Path(f"{scratch}{project}/model.safetensors").stat().st_size
    assert set(ran.writes) == {"model.safetensors", "tied.safetensors", "real.safetensors"}


def test_other_writers_of_files_are_redirected(project):
    ran = run(
        project,
        """\
        import bz2, gzip, json, logging, pickle, sqlite3, tarfile, tempfile, zipfile, os
        import numpy as np, torch
        np.save("a.npy", np.arange(3)); print(np.load("a.npy"))
        np.memmap("b.bin", dtype="int16", mode="w+", shape=(5,))[:] = 7
        print(np.memmap("b.bin", dtype="int16", mode="r").sum(), np.fromfile("b.bin", dtype="int16").sum())
        mine = np.memmap("notes.txt"); mine[0] = ord("f"); print(bytes(mine), open("notes.txt").read())
        np.arange(2).tofile("c.bin")
        with gzip.open("d.gz", "wt") as file: file.write("d")
        with bz2.open("e.bz2", "wt") as file: file.write("e")
        with zipfile.ZipFile("f.zip", "w") as file: file.writestr("x", "y")
        with tarfile.open("g.tar", "w") as file: file.add("notes.txt")
        print(gzip.open("d.gz", "rt").read(), bz2.open("e.bz2", "rt").read(), tarfile.open("g.tar").getnames())
        logging.basicConfig(filename="h.log"); logging.error("x")
        connection = sqlite3.connect("i.db"); connection.execute("create table t(x)"); connection.commit(); connection.close()
        print(sqlite3.connect("i.db").execute("select count(*) from t").fetchone())
        torch.jit.save(torch.jit.script(torch.nn.Identity()), "j.pt"); print(type(torch.jit.load("j.pt")).__name__)
        with torch.profiler.profile() as profile: torch.ones(2) + 1
        profile.export_chrome_trace("k.json"); print("traceEvents" in json.load(open("k.json")))
        with tempfile.NamedTemporaryFile(dir=".") as file: file.write(b"x")
        with tempfile.TemporaryDirectory() as folder: os.system(f"echo x > {folder}/y"); print(os.listdir(folder))
        with tempfile.TemporaryFile() as file: file.write(b"x")
        """,
    )
    assert ran.error is None
    names = {"a.npy", "b.bin", "c.bin", "d.gz", "e.bz2", "f.zip", "g.tar", "h.log", "i.db", "j.pt", "k.json"}
    assert set(ran.writes) == names
    assert not ran.outside
    assert ran.stdout.splitlines() == [
        "[0 1 2]",
        "35 35",
        "b'fine' mine",
        "d e ['notes.txt']",
        "(0,)",
        "RecursiveScriptModule",
        "True",
        "['y']",
    ]


def test_paths_elsewhere_that_are_not_there_can_be_made(project):
    ran = run(
        project,
        """\
        import os
        os.makedirs("/checkpoints/team/run1")
        open("/checkpoints/team/run1/x", "w").write("x")
        print(os.listdir("/checkpoints/team"), os.path.expanduser("~/.cache_of_nobody") and "checkpoints" in os.listdir("/"))
        """,
    )
    assert ran.stdout.splitlines() == ["['run1'] True"]
    assert ran.outside == {"/checkpoints/team/run1/x": 1}
    assert not Path("/checkpoints").exists()


def test_modules_that_the_script_wrote_are_imported(project):
    ran = run(
        project,
        """\
        import importlib, os, sys
        os.makedirs("generated"); open("generated/__init__.py", "w").close()
        open("generated/kernel.py", "w").write("VALUE = 3")
        importlib.invalidate_caches()
        from generated.kernel import VALUE
        print(VALUE)
        """,
    )
    assert ran.stdout == "3\n"


def test_nothing_leaves_the_machine_and_itself_is_reached(project):
    ran = run(
        project,
        """\
        import socket, threading, urllib.request
        def attempt(function):
            try:
                return function()
            except OSError as error:
                return f"{type(error).__name__} {'memlint run' in str(error)}"
        print(attempt(lambda: urllib.request.urlopen("https://example.org/data.zip")))
        print(attempt(lambda: socket.create_connection(("192.0.2.1", 443))))
        print(attempt(lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.7", 53))))
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(("localhost", server.getsockname()[1]))
        server.accept()[0].send(b"here"); print(client.recv(4))
        """,
    )
    assert ran.stdout.splitlines() == ["URLError True", "OSError True", "OSError True", "b'here'"]
    assert ran.connections == {"example.org": 7, "192.0.2.1": 8, "192.0.2.7": 9}


def test_writes_that_are_kept_lie_where_the_script_put_them(project):
    before = tree(project)
    ran = run(
        project,
        """\
        import torch
        from safetensors.torch import load_file, save_file
        model = torch.nn.Linear(1000, 1000).cuda()
        save_file(model.state_dict(), "model.safetensors")
        torch.save(model.state_dict(), "checkpoint.pt")
        print(load_file("model.safetensors")["weight"].shape, torch.load("checkpoint.pt")["weight"].shape)
        """,
        kept=True,
        unchanged=False,
    )
    assert ran.stdout == "torch.Size([1000, 1000]) torch.Size([1000, 1000])\n"
    changed = {name for name, content in tree(project).items() if before.get(name) != content}
    assert changed == {"model.safetensors", "checkpoint.pt", "train.py"}
    assert not ran.writes


def test_threads_read_one_file_of_safetensors_at_a_time(project):
    ran = run(
        project,
        """\
        import sys
        from concurrent.futures import ThreadPoolExecutor
        import torch
        from safetensors import safe_open
        from safetensors.torch import save_file

        sys.setswitchinterval(1e-6)
        save_file({str(n): torch.full((50_000,), float(n)) for n in range(40)}, "many.safetensors")
        with safe_open("many.safetensors", framework="pt") as file, ThreadPoolExecutor(8) as threads:
            print(type(file).__module__)
            read = threads.map(lambda name: (file.get_slice(name)[...] == float(name)).all().item(), 5 * list(file.keys()))
            print(all(read))
        """,
    )
    assert ran.stdout.splitlines() == ["memlint.workloads.safetensors_files", "True"], ran.stderr
