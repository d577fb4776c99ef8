"""The instructions that callgrind counted inside the library, for each of so many: instructions.py PROFILE COUNT. Reads as tests/bench/count does."""
import importlib.machinery
import importlib.util
import pathlib
import sys

sys.dont_write_bytecode = True
path = pathlib.Path(__file__).parents[2] / "bench" / "count"
loader = importlib.machinery.SourceFileLoader("count", str(path))
count = importlib.util.module_from_spec(importlib.util.spec_from_loader("count", loader))
loader.exec_module(count)

own = count.Profile(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")).own
print(round(sum(cost for (there, _), cost in own.items() if there == "libcuplug.so") / int(sys.argv[2])))
