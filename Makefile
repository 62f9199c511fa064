# The commands of this project; `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= data
DIST ?= dist
STAND_IN := target/debug/stand-in
TESTED := target/debug/python
FORELOAD_FUZZ_SECONDS ?= 60
RUST := Cargo.toml Cargo.lock rust-toolchain.toml build.rs $(wildcard src/*/Cargo.toml cuda/kernels/*) \
	$(shell find src cuda/nvjpeg-sys -name '*.rs')
PACKAGE := pyproject.toml $(shell find python -name '*.py' -o -name '*.pyi')
# The program alone, without Python and without what the first batch does not need: it is built in a few minutes.
PROGRAM := target/release/foreload

# The tests start hundreds of Pythons. In containers this variable is often set, and each of them would compile pytest,
# NumPy and torch once more: half of the tests' time.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/target/pycache

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup program provide provide-all fetch test test-all thorough test-rust test-python test-stand-in \
	test-inside test-module test-objects test-dali test-frameworks test-dlio test-wheel test-program stand-in check \
	check-rest stub docs bindings kernels bench fuzz bench-tiers bench-nodes bench-dlio compare compare-recipes \
	compare-packed compare-ops compare-outputs limits fidelity accuracy accuracy-recipe wheel gpu-kit gpu-kit-dali \
	fixtures fixtures-check test-damage bench-arrays bench-buckets bench-layouts bench-outside bench-sharing \
	bench-streams clean distclean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.built ## build everything into .venv: the program .venv/bin/foreload and the Python package

$(VENV)/.tools: tests/environment/requirements.txt
	@bash tests/environment/prerequisites.sh $(PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check $$(grep ^uv== $<)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install -q -r $< || \
		$(BIN)/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@

$(VENV)/.built: $(VENV)/.tools $(RUST) $(PACKAGE)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --release --locked
	@touch $@

# The tests want a torch; the program does not. PyPI's torch, with gigabytes of CUDA, is fetched only where the tests
# require one.
$(VENV)/.torch: $(VENV)/.tools tests/environment/provide_torch.py
	@if $(BIN)/python tests/environment/provide_torch.py .envs/test-torch; then touch $@; \
	else echo "no torch for the tests: those that need one say so; make test-all fetches PyPI's" >&2; \
	[ "$$FORELOAD_REQUIRE_TORCH" != 1 ]; fi

test: provide ## what needs neither time nor gigabytes: cargo test and pytest, without those of GPUs; ten minutes
	@$(MAKE) --no-print-directory --keep-going test-rust test-python

# With all of that fetched, one run of pytest has what test-dali and the first of test-frameworks run; DLIO's tests are
# for thorough.
test-all thorough: export FORELOAD_ALL := 1
test-all thorough: export FORELOAD_REQUIRE_TORCH := 1
test-all thorough: export FORELOAD_REQUIRE_DALI := 1
thorough: export FORELOAD_REQUIRE_DLIO := 1
test-all thorough: export FORELOAD_REQUIRE_FRAMEWORKS := 1
test-all thorough: export ELSEWHERE = $(addprefix --ignore=,$(INSIDE))
test-all thorough: FETCH := fetch
test-all: provide ## those, the long ones, those of GPUs on stand-ins, those with real DALI and frameworks: 4 GB
	@$(MAKE) --no-print-directory --keep-going test-rust test-python test-stand-in test-inside

# What takes long because it is repeated: kills, seeds, draws. What takes long to install is here too: Ray, servers of
# object stores, a wheel, and the libraries whose fixtures are damaged.
thorough: export FORELOAD_THOROUGH := 1
thorough: export FORELOAD_REQUIRE_OBJECTS := 1
thorough: export FORELOAD_REQUIRE_BINDINGS := 1
thorough: export FORELOAD_REQUIRE_NVRTC := 1
thorough: export FORELOAD_REQUIRE_REDIS := 1
ifneq ($(wildcard ../shared),)
thorough: export FORELOAD_REQUIRE_SHARED := 1
endif
thorough: provide ## all tests, none of them shortened; PART="test-rust check" runs these parts alone
	@$(BIN)/python tests/environment/thorough.py $(PART)

# Cargo compiles while this fetches. `make -j` would not do: cargo would take its number of jobs for its own.
FETCH := $(VENV)/.torch
provide:
	@bash tests/environment/prerequisites.sh $(PYTHON)
	@$(CARGO_TEST) --no-run & compiling=$$!; \
	$(MAKE) --no-print-directory $(FETCH); fetched=$$?; wait $$compiling && exit $$fetched

provide-all: export FORELOAD_REQUIRE_TORCH := 1
provide-all: FETCH := fetch
provide-all: provide ## compile the tests, and meanwhile fetch all that test-all wants

# It fetches nothing that is there already.
fetch: $(VENV)/.torch
	$(BIN)/python tests/environment/provide_redis.py
	$(BIN)/python tests/environment/provide_dali.py
	$(BIN)/python tests/environment/provide_frameworks.py
	if [ "$$FORELOAD_REQUIRE_DLIO" = 1 ]; then $(BIN)/python benches/harness/environments.py dlio; fi

# Every target asks cargo for the same: other packages or features would compile all that they share once more.
CARGO_TEST := cargo test --locked

test-rust: $(VENV)/.tools
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/python tests/environment/rust_tests.py

# Four files of tests at a time, however many cores there are, since most tests wait for processes. The tests of a file
# run one after another: some go on from what others left.
AT_A_TIME := bin/python -m pytest -n 4 --dist loadfile
PYTEST := $(TESTED)/$(AT_A_TIME)
# Threads of torch would wait for each other where four tests share the cores: some tests then take ten times as long.
test-python test-stand-in test-inside test-dali test-frameworks: export OMP_NUM_THREADS := 1

test-python: test-module $(VENV)/.torch
	$(PYTEST) $(ELSEWHERE)

# The first run is for a machine with a GPU and skips all of its tests elsewhere; the second needs no GPU.
test-stand-in: test-module $(VENV)/.torch
	$(PYTEST) -o addopts=-rfE tests/gpu
	LD_LIBRARY_PATH=$(STAND_IN) FORELOAD_REQUIRE_GPU=stand-in $(PYTEST) -o addopts=-rfE tests/gpu

test-module: $(VENV)/.tools stand-in
	$(BIN)/python tests/environment/provide_module.py target/debug

# For Python's tests and for trying things: LD_LIBRARY_PATH=target/debug/stand-in .venv/bin/foreload doctor
stand-in: ## build the stand-ins for NVIDIA's libraries into target/debug/stand-in
	$(CARGO_TEST) --no-run
	install -D target/debug/deps/libcuda_stand_in.so $(STAND_IN)/libcuda.so.1
	install -D target/debug/deps/libnvjpeg_stand_in.so $(STAND_IN)/libnvjpeg.so.13

# Some fifty crates more, and servers of the stores' protocols below .envs: what lies in stores is left out of `test`.
test-objects: ## the tests of object stores, with servers of their protocols, which are built or fetched
	bash tests/environment/provide_stores.sh
	cargo clippy --locked --features objects --lib --test objects -- -D warnings
	$(CARGO_TEST) --features objects --test objects
	$(CARGO_TEST) --features objects --lib source::

# 200 MB that only these tests need. Once DALI is there, `make test` runs them too.
test-dali: test-module ## the tests with a real DALI
	$(BIN)/python tests/environment/provide_dali.py
	FORELOAD_REQUIRE_DALI=1 $(PYTEST) \
		$(addprefix tests/python/,test_dali.py test_dali_source.py test_stream_front.py test_recipe_benchmark.py)

# 4 GB, nearly all of them torch's. Once the frameworks are there, `make test` runs them too.
FRAMEWORKS := $(addprefix tests/python/,test_examples.py test_stream_examples.py test_kill.py test_ranks.py \
	test_clusters.py test_launched_nodes.py test_mesh.py test_pages.py test_accuracy.py)

test-frameworks: test-module ## the tests with real frameworks: some of examples/, torchrun, mpirun, Slurm
	$(BIN)/python tests/environment/provide_frameworks.py
	FORELOAD_REQUIRE_FRAMEWORKS=1 $(PYTEST) $(FRAMEWORKS)
	@$(MAKE) --no-print-directory test-inside

# What these import lies beside the frameworks, so that pytest itself runs there.
INSIDE := $(addprefix tests/python/,test_torchvision.py test_torchvision_pixels.py test_torchvision_geometry.py \
	test_torchvision_ops.py test_torchvision_mixing.py test_torchvision_recipes.py test_torchvision_labels.py \
	test_draws.py test_recipe_outputs.py test_webdataset.py test_taken_over.py test_huggingface.py test_label_kinds.py \
	test_frameworks.py test_gpu_peers.py test_recipe_benchmark.py)

test-inside: test-module
	PYTHONPATH=$(TESTED)/module FORELOAD_REQUIRE_FRAMEWORKS=1 .envs/frameworks/$(AT_A_TIME) $(INSIDE)

test-wheel: $(VENV)/.tools ## the wheel in an environment that has nothing else
	rm -rf target/wheel
	$(BIN)/maturin build --profile dist --locked --out target/wheel
	$(PYTHON) -m venv target/wheel/environment
	target/wheel/environment/bin/python -m pip install -q --disable-pip-version-check numpy target/wheel/*.whl
	cd target/wheel && environment/bin/foreload doctor
	cd target/wheel && environment/bin/foreload bench $(CURDIR)/tests/fixtures/webdataset/shards/files --batch-size 4

# What `make bench` builds: it says what it lacks.
test-program: program
	$(PROGRAM) bench tests/fixtures/webdataset/shards/files --batch-size 4
	$(PROGRAM) plan data --epochs 90 2>&1 | grep 'cargo feature `simulate`'

# PyPI's torch comes along, as for the peers of `make compare`: some GB, once.
test-dlio: test-module ## the tests with the real DLIO, through MPI
	$(BIN)/python benches/harness/environments.py dlio
	FORELOAD_THOROUGH=1 FORELOAD_REQUIRE_DLIO=1 $(TESTED)/bin/python -m pytest tests/python/test_dlio.py

check: test-module ## formatting, lints, house rules; compare the stub and docs/settings.md with the module
	cargo fmt --all --check
	cargo clippy --locked --all-targets -- -D warnings
	$(BIN)/ruff check --no-cache python tests benches cuda examples
	$(BIN)/ruff format --no-cache --check python tests benches cuda examples
	$(CARGO_TEST) --test tidy
	$(CARGO_TEST) --test load settings::
	$(TESTED)/bin/python tests/environment/check_stub.py
	$(BIN)/python cuda/compile.py --check

# Each compiles something that nothing else needs. The first clippy runs without any feature, like `make bench`.
check-rest: test-module ## lints of the program without features and of the bindings; documentation; features; bindings
	cargo clippy --locked --package foreload --bins --no-default-features -- -D warnings
	cargo clippy --locked -p nvjpeg-bindings -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" \
		cargo doc --locked --no-deps --lib --document-private-items
	bash tests/environment/check_features.sh
	bash cuda/nvjpeg-bindings/run.sh $(BIN)/python --check

stub: ## write stubs and docs/settings.md anew from the tables of settings and transforms
	FORELOAD_WRITE_STUB=1 $(CARGO_TEST) --test load settings::

# Material for MkDocs and mkdocstrings, in an environment of their own. Warnings and dead links are errors.
docs: test-module ## build the documentation site into target/site
	$(BIN)/python benches/harness/environments.py docs
	FORELOAD="$(TESTED)/bin/python -m foreload" NO_MKDOCS_2_WARNING=1 .envs/docs/bin/mkdocs build --quiet

bindings: $(VENV)/.tools ## write nvJPEG's bindings anew from the headers in PyPI's wheels
	bash cuda/nvjpeg-bindings/run.sh $(BIN)/python

# 2 GB of the libraries, most of it TensorFlow's. What is committed is all that the tests read.
fixtures: ## write the fixtures of all layouts anew, by the libraries whose layouts they are
	$(PYTHON) tests/fixtures/make.py

fixtures-check: ## write them elsewhere and compare with those that are committed
	$(PYTHON) tests/fixtures/make.py --check

# It needs what `make fixtures` fetches.
test-damage: test-module ## 1000 damages of each fixture, read by Foreload and the layout's own library: some hours
	$(BIN)/python tests/python/damaged_fixtures.py --module $(TESTED)/module

kernels: $(VENV)/.tools ## compile the CUDA kernels, with NVRTC from PyPI; print registers and spills
	$(BIN)/python cuda/compile.py

# Cargo knows whether there is anything to do.
program:
	@bash tests/environment/prerequisites.sh $(PYTHON)
	cargo build --locked --release --package foreload --bins --no-default-features

# The photographs that they are made from come with scikit-image, which is fetched while cargo compiles.
$(DATA)/folder: IMAGES := 4000
$(DATA)/first: IMAGES := 2000
$(DATA)/folder $(DATA)/first:
	@$(MAKE) --no-print-directory program & compiling=$$!; \
	$(MAKE) --no-print-directory $(VENV)/.tools; fetched=$$?; wait $$compiling && exit $$fetched
	@mkdir -p $(DATA)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(PROGRAM) synth $@ --images $(IMAGES)

bench: $(DATA)/first program ## the main job on 2000 ImageNet-like photographs: fast, exact, float16
	$(PROGRAM) bench $(DATA)/first --epochs 3 --batch-size 256
	$(PROGRAM) bench $(DATA)/first --epochs 3 --batch-size 256 --decode exact
	$(PROGRAM) bench $(DATA)/first --epochs 3 --batch-size 256 --dtype float16

fuzz: $(VENV)/.tools ## hammer the parsers with broken input, FORELOAD_FUZZ_SECONDS (60) each
	FORELOAD_FUZZ_SECONDS=$(FORELOAD_FUZZ_SECONDS) $(CARGO_TEST) --release --test data --test images --test load \
		-- --nocapture --test-threads 1 fuzz:: any_bytes

bench-tiers: setup ## the cache on NVMe beside an emulated slow storage: bytes, stalls, overhead, predictions
	$(BIN)/python benches/tiers/run.py --data $(DATA)/tiers --output benches/results/tiers

# It needs root, for network namespaces. Until peers read from each other it measures private caches, and says so.
bench-nodes: setup ## 2, 4 and 8 nodes as processes on one machine, with one slow storage: bytes, moves, waiting
	cargo build --locked --release -p slow-fs
	$(BIN)/python benches/nodes/run.py --data $(DATA)/nodes --output benches/results/nodes

bench-dlio: setup ## DLIO's accelerator utilisation with its own loader and with Foreload, from slow and fast storage
	cargo build --locked --release -p slow-fs
	$(BIN)/python benches/dlio/run.py --data $(DATA)/dlio --output benches/results/dlio

# PHOTOS=DIR measures somebody's own photographs by any of these, instead of those that `foreload synth` makes.
PHOTOGRAPHS = $(or $(PHOTOS),$(DATA)/folder)

compare: setup ## Foreload beside torchvision, DALI, SPDL, WebDataset, tf.data, FFCV on the same files
	$(BIN)/python benches/compare/run.py --data $(or $(PHOTOS),$(DATA)/folder $(DATA)/web)

compare-recipes: setup ## recipes people train with, beside torchvision, DALI, albumentations: 20 minutes
	$(BIN)/python benches/recipes/run.py --data $(PHOTOGRAPHS) --output benches/results/recipes

# Packed shards of photographs are made beside them.
compare-packed: setup $(if $(PHOTOS),,$(DATA)/folder) ## packed shards beside JPEGs, DALI, torchvision, FFCV: 10 minutes
	$(BIN)/python benches/compare/packed.py --data $(PHOTOGRAPHS) --output benches/results/packed

# The environment with torchvision and timm, some GB, is that of the tests with real frameworks.
compare-ops: setup ## each transform beside torchvision's function, given what was drawn: 5 minutes
	$(BIN)/python benches/transforms/run.py ops --data $(PHOTOGRAPHS) --output benches/results/ops

compare-outputs: setup ## recipes beside their sources' own transforms, as distributions: 40 minutes
	$(BIN)/python benches/transforms/run.py outputs --data $(PHOTOGRAPHS) --output benches/results/outputs

# 6 GB of the libraries, nearly all of it torch's and TensorFlow's, and 5 GB of data.
bench-layouts: setup $(DATA)/folder ## each layout beside its own library; opening 10 million samples: 20 minutes
	$(BIN)/python benches/layouts/run.py --data $(DATA)/folder --output benches/results/layouts

bench-buckets: setup ## batches of several sizes beside a DataLoader with a bucket sampler: 10 minutes
	$(BIN)/python benches/buckets/run.py --data $(or $(PHOTOS),$(DATA)/web) --output benches/results/buckets

# 5 GB of the libraries, nearly all of it torch's, and 13 GB of data. GIGABYTES=10 makes larger fields.
bench-arrays: setup ## arrays in HDF5, zarr, npy and npz beside h5py, zarr-python and NumPy in a DataLoader: 1 hour
	cargo build --locked --release -p slow-fs
	$(BIN)/python benches/arrays/run.py --data $(DATA)/arrays --gigabytes $(or $(GIGABYTES),4) \
		--output benches/results/arrays

# 5 GB of torch, redis-py, Reverb with its TensorFlow. A Redis server has to be installed: apt-get install redis-server
bench-streams: setup $(DATA)/folder ## streams beside epochs, torch's IterableDataset and Reverb: 25 minutes
	$(BIN)/python benches/streams/run.py --data $(DATA)/folder --output benches/results/streams

bench-sharing: setup $(DATA)/folder ## trainings that share batches, compared with DataLoaders: 9 minutes
	$(BIN)/python benches/sharing/run.py --data $(DATA)/folder --output benches/results/sharing

bench-outside: program $(DATA)/folder ## a Rust program with cargo's default release profile beside our own program
	cp Cargo.lock benches/outside
	cargo build --release --target-dir target/outside --manifest-path benches/outside/Cargo.toml
	$(BIN)/python benches/outside/run.py --data $(DATA)/folder --output benches/results/outside

limits: setup ## the reader against fio, decoding against libjpeg-turbo, depth against storage that takes milliseconds
	$(BIN)/python benches/limits/run.py --data $(DATA)/folder
	cargo build --locked --release -p slow-fs
	$(BIN)/python benches/limits/depth.py

fidelity: setup $(DATA)/folder ## how near each loader's pixels come to PIL's
	$(BIN)/python benches/fidelity/run.py --data $(DATA)/folder

# CIFAR-10 as JPEG files. Runs whose results exist are not repeated.
accuracy: setup ## what a network learns from Foreload's batches and from torchvision's: an hour
	$(BIN)/python benches/accuracy/fetch.py $(DATA)/cifar10-20000 --train 20000
	$(BIN)/python benches/accuracy/run.py --data $(DATA)/cifar10-20000 --output benches/results/accuracy

accuracy-recipe: setup ## the same with TrivialAugmentWide, RandomErasing and MixUp: 40 minutes
	$(BIN)/python benches/accuracy/fetch.py $(DATA)/cifar10-20000 --train 20000
	$(BIN)/python benches/accuracy/run.py --data $(DATA)/cifar10-20000 --recipe strong \
		--output benches/results/accuracy-strong

# Built against an old glibc, by PyPI's zig: for any Linux of the last years, and any Python from 3.10 on.
wheel: $(VENV)/.tools ## a wheel for other machines in dist/: pip install dist/foreload-*.whl
	$(BIN)/python -m pip install -q --disable-pip-version-check ziglang==0.17.0
	PATH=$(CURDIR)/$(BIN):$$PATH VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin build --profile dist --locked --zig \
		--compatibility manylinux_2_28 --out $(DIST)

gpu-kit: setup ## pack the wheel, nvJPEG, tests, benchmarks and images for a GPU machine without network: gpu-kit/run.sh
	$(BIN)/python benches/gpu/pack.py gpu-kit

gpu-kit-dali: setup ## pack DALI too, in pieces of 51 MB, which gpu-kit/dali/join.sh joins
	$(BIN)/python benches/gpu/pack.py gpu-kit --dali

clean: ## remove what was built, leave environments and data
	cargo clean
	rm -f $(VENV)/.built python/foreload/*.so

distclean: clean ## remove environments and data too
	rm -rf $(VENV) .envs $(DATA) $(DIST) gpu-kit
