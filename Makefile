# make demo   on a fresh machine with Go: sets up, builds, runs the main job on the embedded model
# make check  format, vet, staticcheck and the tests that need no llama.cpp; within a minute
# make test   the same set-up, then every check and test; about 11 minutes on two cores
#
# make install   puts it below PREFIX (/usr/local), with the llama.cpp that it uses
# make dist      packs the same up for other machines: build/llamatap-VERSION-linux-ARCH.tar.gz
#
# LLAMA_PREFIX=/path links with a llama.cpp of your own (CUDA, Metal, newer) instead of Debian's.

GO           ?= go
CC           ?= cc
LLAMA_PREFIX ?=
PREFIX       ?= /usr/local

llama   := third_party/llama.cpp
link     = $(llama)/link
goflags  = $(shell $(link) --env $(LLAMA_PREFIX))
cflags   = $(shell $(link) --cflags $(LLAMA_PREFIX))
comma   := ,
novcs   := $(shell git rev-parse HEAD >/dev/null 2>&1 || echo -buildvcs=false)
tap_c   := $(wildcard cgo/tap/*.c)
tap_h   := $(wildcard cgo/tap/*.h)
instr   := cgo/instrument
C_FLAGS := -std=gnu11 -O2 -Wall -Wextra -Werror

.PHONY: check check-generated soak endurance dataset install uninstall dist build demo test nightly bench bench-compare bench-profile bench-smoke fuzz-smoke lint clean env update-llama setup llama tap instrument FORCE
.DEFAULT_GOAL := build

build: bin/llamatap tap instrument

install: llama tap instrument
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" LLAMA_PREFIX="$(LLAMA_PREFIX)" GO="$(GO)" scripts/package install

uninstall:
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/package uninstall

dist: llama tap instrument
	@mkdir -p build
	@LLAMA_PREFIX="$(LLAMA_PREFIX)" GO="$(GO)" scripts/package dist "build/llamatap-$$(git describe --tags --always --dirty)-linux-$$($(GO) env GOARCH).tar.gz"

demo: build
	bin/llamatap demo

# check needs Go alone: no llama.cpp, no C compiler, no root.
check:
	@scripts/test quick

test nightly: export LLAMATAP_NIGHTLY = $(if $(filter nightly,$@),1)
test nightly:
	scripts/setup programs
	@# the Python modules of the oracles while Go compiles
	@scripts/setup modules & $(MAKE) --no-print-directory build; status=$$?; wait; exit $$status
	scripts/test

# setup installs what is missing to build, or says what to install by hand.
setup:
	@scripts/setup build

# llama makes llama.cpp ready to link with and writes the git-ignored cgo/*/zflags.go.
llama: setup
	@$(if $(LLAMA_PREFIX),,$(llama)/fetch)
	@$(link) $(LLAMA_PREFIX)

bin/llamatap: llama FORCE
	GOFLAGS="$(goflags)" $(GO) build $(novcs) -o $@ ./cmd/llamatap

# tap is the tap as an object to preload into any program that runs llama.cpp.
tap: $(if $(tap_c),bin/libllamatap.so)

# link rewrites this only when its flags change, and then the object is made anew.
cgo/tap/zflags.go: llama
	@:

bin/libllamatap.so: $(tap_c) $(tap_h) cgo/tap/zflags.go Makefile
	@mkdir -p bin
	$(CC) $(C_FLAGS) -fPIC -shared -DLLAMATAP_PRELOADED $(cflags) -o $@.new $(tap_c) -ldl -pthread
	@mv $@.new $@

# instrument is the library behind cgo/instrument/llama-resource-instrumentation.h (docs/INSTRUMENT.md). It links with nothing of llama.cpp.
instrument: bin/libllama-resource-instrumentation.so

bin/libllama-resource-instrumentation.so: $(wildcard $(instr)/*.c) $(wildcard $(instr)/*.h) cgo/tap/zflags.go Makefile
	@mkdir -p bin
	$(CC) $(C_FLAGS) -fPIC -shared -fvisibility=hidden -Wl,-z,defs -Wl,-soname,$(notdir $@) $(cflags) -o $@.new $(instr)/*.c -pthread
	@mv $@.new $@

# soak records for SOAK (20m) and demands that memory does not grow.
SOAK ?= 20m
soak: build
	LLAMATAP_NIGHTLY=1 SOAK=$(SOAK) GOFLAGS="$(goflags)" $(GO) test ./oracle -run TestSoak -v -count=1 -timeout 24h

# endurance lets a server work for ENDURANCE (1h) with every recorder, and kills it again and again.
ENDURANCE ?= 1h
endurance: build
	LLAMATAP_NIGHTLY=1 SOAK=$(ENDURANCE) GOFLAGS="$(goflags)" $(GO) test ./oracle -run TestEndurance -v -count=1 -timeout 48h

# dataset makes the data set of docs/DATASET.md in build/dataset; DATASET=small the small one in build/dataset-small.
DATASET ?=
dataset: build
	scripts/dataset $(DATASET)

# bench runs the Go benchmarks, the gates of the tap and a script of its levels (docs/BENCH.md).
bench: build
	GOFLAGS="$(subst =llama,=llama$(comma)nightly,$(goflags))" $(GO) test -run '^$$' -bench . -p 1 ./store/... ./resource/... ./memtrace/... ./inspect/... ./cgo/tap
	bin/llamatap bench tap
	bin/llamatap bench -f examples/bench/levels.yaml --dir bin

# bench-compare measures this checkout against another: make bench-compare BASE=main BENCH='-m model.gguf -n 64'
BASE  ?=
BENCH ?= -p 128 -n 64
PROFILE ?= --tap-tensor=l_out*
bench-compare: build
	scripts/bench-compare $(BASE) $(BENCH)

# bench-profile samples where the CPU's time goes: make bench-profile PROFILE='--tap-tensor=l_out*' [BASE=rev]
bench-profile: build
	scripts/bench-profile "$(BASE)" $(PROFILE)

# bench-smoke runs every benchmark once: it proves that they work, not how fast.
bench-smoke: build
	GOFLAGS="$(goflags)" $(GO) test -run '^$$' -bench . -benchtime 1x ./...
	bin/llamatap bench tap -m models/gopher-6m-q8_0.gguf -dir bin -pairs 1 -time 1ns -n 8 -prompt 1 -only 'map of memory'
	bin/llamatap bench -p 16 -n 4 -pg 8,4 -d 0,8 -r 1 --rounds 1 --tap-tensor 'l_out*' --dir bin

fuzz-smoke: llama
	scripts/test fuzz

lint: llama
	scripts/test lint

# env prints what a shell needs for go build and go test by hand: eval "$(make -s env)"
env: llama
	@printf 'export GOFLAGS="%s"\n' "$(goflags)"

# pictures draws docs/pictures from real runs; PICTURES names some of them: make pictures PICTURES='session kv'
PICTURES ?=
pictures: build
	$(GO) run ./internal/testenv/pictures $(PICTURES)

# check-generated makes the BPF objects anew and compares them with what is committed.
check-generated:
	@scripts/check-generated

update-llama:
	$(llama)/fetch --update

clean:
	rm -rf bin build $(llama)/dist $(llama)/dist.* cgo/*/zflags.go

FORCE:
