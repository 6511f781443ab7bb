# The targets that people know, each a call of CMake (CMakePresets.json) or of a script.
# Every build leaves ./picolm beside this file; cross builds are static.

PREFIX  ?= /usr/local
DESTDIR ?=
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)
MODEL_DIR ?= models
MACHINE := $(shell uname -m)

HINT = { echo "The build failed. If something is missing, ./install.sh installs it." >&2; exit 1; }

# $(call build,PRESET,OPTIONS)
define build
	@cmake --preset $(1) $(2) && \
	    cmake --build --preset $(1) --target picolm -j $(JOBS) || $(HINT)
	@cp -f build/$(1)/picolm picolm && echo "./picolm: $(1)"
endef

native:
	$(call build,release,-DPICOLM_TESTS=OFF)

static debug:
	$(call build,$@,-DPICOLM_TESTS=OFF)

# On the board itself these build for it; elsewhere they cross-compile.
pi: $(if $(filter aarch64,$(MACHINE)),native,cross-pi)
riscv: $(if $(filter riscv64,$(MACHINE)),native,cross-riscv)
pi-arm32: $(if $(filter arm%,$(MACHINE)),native,cross-pi-arm32)

cross-pi:
	$(call build,aarch64)

cross-riscv:
	$(call build,riscv64)

cross-pi-arm32:
	$(call build,armv6)

model:
	tools/get_model.sh $(MODEL_DIR)

test:
	./test.sh

install:
	@test -x picolm || { echo "make install: no ./picolm yet; run make first" >&2; exit 1; }
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 picolm $(DESTDIR)$(PREFIX)/bin/picolm

clean:
	rm -rf build picolm

.PHONY: native static debug pi riscv pi-arm32 cross-pi cross-riscv cross-pi-arm32 model test \
    install clean
