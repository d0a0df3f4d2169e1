# smoe: plain GNU make, no configure step. `make help` lists the targets.
#
# Variables: CC, CFLAGS, LDFLAGS, OPT (-O2), WERROR (-Werror), DEBUG=1, NATIVE=1, BUILD (build),
# PREFIX (/usr/local), DESTDIR, V=1 (show the commands). A changed compiler or flag rebuilds.

BUILD ?= build
PREFIX ?= /usr/local
OPT ?= $(if $(DEBUG),-Og -g3,-O2)
WERROR ?=
SAN ?=
PKG_CONFIG ?= pkg-config
CLANG ?= clang
CROSS_ARM ?= aarch64-linux-gnu-gcc

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:

# Says what is made, or with V=1 how.
Q := $(if $(V),,@)
say = $(if $(V),:,printf '  %-4s %s\n' $(1) $@)

VERSION := $(shell sed -n 's/^.define SMOE_VERSION "\(.*\)"/\1/p' include/smoe.h)
SONAME := libsmoe.so.$(firstword $(subst ., ,$(VERSION)))

# ---- what the machine has

NEED := json-c libpcre2-8 libutf8proc libxxhash
NEED_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(NEED) 2>/dev/null)
NEED_LIBS := $(shell $(PKG_CONFIG) --libs $(NEED) 2>/dev/null)
NO_BUILD := help clean uninstall dist
ifeq ($(NEED_LIBS),)
ifneq ($(filter-out $(NO_BUILD),$(or $(MAKECMDGOALS),all)),)
$(error Missing libraries: need $(NEED) through pkg-config. Run ./scripts/deps.sh build)
endif
endif
# Optional: io_uring (threads with pread take over without it) and line editing in `smoe chat`.
ifneq ($(shell $(PKG_CONFIG) --exists liburing 2>/dev/null && echo yes),)
NEED += liburing
NEED_CFLAGS += -DSMOE_HAVE_URING
NEED_LIBS += $(shell $(PKG_CONFIG) --libs liburing)
endif
ifneq ($(shell $(PKG_CONFIG) --exists libedit 2>/dev/null && echo yes),)
CLI_CFLAGS := -DSMOE_HAVE_EDIT $(shell $(PKG_CONFIG) --cflags libedit)
CLI_LIBS := $(shell $(PKG_CONFIG) --libs libedit)
endif

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
        -Wvla -Wcast-qual -Wformat=2 -Wundef
# No contraction: kernels ask for fused multiply-adds where they want them, so that the portable
# reference stays what its source says.
BASE_CFLAGS = -std=c11 -D_GNU_SOURCE $(OPT) -g -fPIC -fvisibility=hidden -fno-math-errno \
              -ffp-contract=off $(if $(NATIVE),-march=native) $(WARN) $(WERROR) -Iinclude -Isrc \
              $(NEED_CFLAGS) $(SAN)
LDLIBS_ALL = $(NEED_LIBS) -lm -lpthread

# Flags of one source file. One kernel source for each instruction set is compiled with its flags
# and chosen at run time; everything else stays at the architecture's baseline.
AVX2 := -mavx2 -mfma -mf16c
AVX512 := $(AVX2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
AMX := $(AVX512) -mamx-tile -mamx-int8
X86 := $(filter x86_64,$(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null))))
NEON := -march=armv8.2-a+dotprod
ARM := $(filter aarch64,$(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null))))
file_flags = $(if $(filter -O2,$(OPT)),$(if $(filter src/kernels/%,$(1)),-O3)) \
             $(if $(X86),$(if $(filter %_avx2.c,$(1)),$(AVX2))) \
             $(if $(X86),$(if $(filter %_avxvnni.c,$(1)),$(AVX2) -mavxvnni)) \
             $(if $(X86),$(if $(filter %_avx512.c,$(1)),$(AVX512))) \
             $(if $(ARM),$(if $(filter %_neon.c,$(1)),$(NEON))) \
             $(if $(X86),$(if $(filter %_amx.c,$(1)),$(AMX))) \
             $(if $(filter src/cli/%,$(1)),$(CLI_CFLAGS)) $(if $(filter tests/%,$(1)),-Itests)
compile_flags = $(strip $(BASE_CFLAGS) $(call file_flags,$(1)) $(CFLAGS))

# ---- sources

ALL_SRC := $(sort $(filter-out src/cli/%,$(wildcard src/*/*.c src/*/*/*.c)))
OTHER_ISA := $(if $(X86),,%_avx2.c %_avxvnni.c %_avx512.c) $(if $(ARM),,%_neon.c)
LIB_SRC := $(filter-out $(OTHER_ISA),$(ALL_SRC))
CLI_SRC := $(sort $(wildcard src/cli/*.c))
TEST_SRC := $(sort $(wildcard tests/*.c))
BENCH_SRC := $(sort $(wildcard bench/*.c))
FUZZ_NAMES := $(patsubst tests/fuzz/%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
HEADERS := $(sort $(wildcard include/*.h src/*/*.h src/*/*/*.h tests/*.h bench/*.h))
obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
LIB_OBJ := $(call obj,$(LIB_SRC))
CLI_OBJ := $(call obj,$(CLI_SRC))
TEST_OBJ := $(call obj,$(TEST_SRC))
BENCH_OBJ := $(call obj,$(BENCH_SRC))
FUZZ_OBJ := $(call obj,$(FUZZ_NAMES:%=tests/fuzz/%.c))
FUZZ_DRIVER_OBJ := $(call obj,tests/fuzz/driver.c)
FUZZ_REPLAY := $(FUZZ_NAMES:%=$(BUILD)/fuzz-replay/%)

all: $(BUILD)/smoe $(BUILD)/libsmoe.a $(BUILD)/libsmoe.so ## build the program and both libraries

# Stamps hold the flags and the lists of files; they are touched only when these change.
quote = '$(subst ','\'',$(1))'
STAMP_COMPILE = $(CC) $(shell $(CC) -dumpfullversion -dumpversion 2>/dev/null) $(BASE_CFLAGS) \
                $(CFLAGS) $(CLI_CFLAGS)
STAMP_LINK = $(CC) $(SAN) $(LDFLAGS) $(LDLIBS_ALL) $(CLI_LIBS) $(LIB_OBJ) $(CLI_OBJ) $(TEST_OBJ) \
             $(BENCH_OBJ)
$(BUILD)/stamp/compile: TEXT = $(STAMP_COMPILE)
$(BUILD)/stamp/link: TEXT = $(STAMP_LINK)
$(BUILD)/stamp/%: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' $(call quote,$(TEXT)) >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

$(BUILD)/obj/%.o: %.c Makefile $(BUILD)/stamp/compile
	@mkdir -p $(@D)
	@$(call say,CC)
	$(Q)$(CC) $(call compile_flags,$<) -MMD -MP -c -o $@ $<

$(BUILD)/libsmoe.a: $(LIB_OBJ) $(BUILD)/stamp/link
	@$(call say,AR)
	@rm -f $@
	$(Q)$(AR) rcs $@ $(LIB_OBJ)

$(BUILD)/libsmoe.so.$(VERSION): $(LIB_OBJ) $(BUILD)/stamp/link
	@$(call say,LD)
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) $(if $(SAN),,-Wl,--no-undefined) $(SAN) $(LDFLAGS) -o $@ \
	    $(LIB_OBJ) $(LDLIBS_ALL)

$(BUILD)/libsmoe.so: $(BUILD)/libsmoe.so.$(VERSION)
	@ln -sf $(<F) $(BUILD)/$(SONAME)
	@ln -sf $(SONAME) $@

link = @$(call say,LD); $(if $(V),set -x;) \
       $(CC) $(SAN) $(LDFLAGS) -o $@ $(1) $(BUILD)/libsmoe.a $(2) $(LDLIBS_ALL)

$(BUILD)/smoe: $(CLI_OBJ) $(BUILD)/libsmoe.a $(BUILD)/stamp/link
	$(call link,$(CLI_OBJ),$(CLI_LIBS))

# Tests look at these parts of the program from within.
TESTED_CLI := $(BUILD)/obj/src/cli/live_frame.o $(BUILD)/obj/src/cli/stats.o
$(BUILD)/smoe-test: $(TEST_OBJ) $(TESTED_CLI) $(BUILD)/libsmoe.a $(BUILD)/stamp/link
	$(call link,$(TEST_OBJ) $(TESTED_CLI))

$(BUILD)/smoe-bench: $(BENCH_OBJ) $(BUILD)/libsmoe.a $(BUILD)/stamp/link
	$(call link,$(BENCH_OBJ))

# ---- tests

TEST_NEEDS := $(BUILD)/smoe-test $(BUILD)/smoe $(FUZZ_REPLAY)
SANITIZER_ENV := ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1 \
                 UBSAN_OPTIONS=print_stacktrace=1 \
                 TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

# T=pattern runs only the tests whose names or files contain it.
check: $(TEST_NEEDS) ## run the fast tests (T=pattern: some of them)
	@SMOE_BIN=$(BUILD)/smoe $(BUILD)/smoe-test $(T)

check-all: $(TEST_NEEDS) ## run them thoroughly: permutations, sanitizers, fuzz corpora
	@BUILD=$(BUILD) MAKE="$(MAKE)" scripts/stages.sh thorough one-thread ring-floor io-threads \
	    portable chunk-1 asan ubsan tsan fuzz-replay install arm

# Each sanitizer has a folder of its own; SMOE_TEST_SLOW stretches the time limits of tests.
asan: ## the fast tests under AddressSanitizer
	@$(SANITIZER_ENV) SMOE_TEST_SLOW=6 $(MAKE) --no-print-directory BUILD=$(BUILD)/asan OPT=-O1 \
	    SAN='-fsanitize=address -fno-omit-frame-pointer' check

ubsan: ## the fast tests under UndefinedBehaviorSanitizer
	@$(SANITIZER_ENV) SMOE_TEST_SLOW=6 $(MAKE) --no-print-directory BUILD=$(BUILD)/ubsan OPT=-O1 \
	    SAN='-fsanitize=undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' check

# ThreadSanitizer of older compilers cannot live with much address randomisation: none for it.
tsan: ## the fast tests under ThreadSanitizer
	@$(SANITIZER_ENV) SMOE_TEST_SLOW=15 $$(setarch -R true 2>/dev/null && echo setarch -R) \
	    $(MAKE) --no-print-directory BUILD=$(BUILD)/tsan OPT=-O1 \
	    SAN='-fsanitize=thread -fno-omit-frame-pointer' check

# ---- fuzzing

$(BUILD)/fuzz-replay/%: $(BUILD)/obj/tests/fuzz/%.o $(FUZZ_DRIVER_OBJ) $(BUILD)/libsmoe.a \
                        $(BUILD)/stamp/link
	@mkdir -p $(@D)
	$(call link,$< $(FUZZ_DRIVER_OBJ))

$(BUILD)/fuzzer/%: $(BUILD)/obj/tests/fuzz/%.o $(BUILD)/libsmoe.a $(BUILD)/stamp/link
	@mkdir -p $(@D)
	$(call link,-fsanitize=fuzzer $<)

fuzzers: $(FUZZ_NAMES:%=$(BUILD)/fuzzer/%)

fuzz: ## fuzz each parser for T seconds (clang; finds land in build/fuzz)
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CC=$(CLANG) OPT=-O1 \
	    SAN='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined' fuzzers
	@scripts/fuzz.sh $(BUILD)/fuzz $(or $(T),30) $(FUZZ_NAMES)

fuzz-replay: $(FUZZ_REPLAY) ## run the fuzz corpora through their parsers (any compiler)
	@scripts/fuzz-replay.sh $(BUILD)/fuzz-replay $(FUZZ_NAMES)

# ---- quality

FORMAT_SRC := $(ALL_SRC) $(CLI_SRC) $(TEST_SRC) $(BENCH_SRC) $(HEADERS) \
              $(sort $(wildcard tests/fuzz/*.c))
TIDY := $(patsubst %.c,$(BUILD)/tidy/%.ok,$(filter-out %_tables.c,$(LIB_SRC) $(CLI_SRC)))

lint: ## check format, style, include order and scripts
	@MAKE="$(MAKE)" BUILD=$(BUILD) scripts/lint.sh $(FORMAT_SRC)

tidy: $(TIDY)
$(BUILD)/tidy/%.ok: %.c $(HEADERS) .clang-tidy scripts/lint-model.h
	@mkdir -p $(@D)
	@echo "clang-tidy $<"
	@$(or $(CLANG_TIDY),clang-tidy) --quiet $< -- $(filter-out -f%,$(call compile_flags,$<)) \
	    $(if $(filter src/base/error.c,$<),,-include scripts/lint-model.h) \
	    2>$@.log || { cat $@.log >&2; exit 1; }
	@touch $@

format: ## rewrite the sources in the project's format (clang-format 14)
	@$(or $(CLANG_FORMAT),clang-format) -i $(FORMAT_SRC)

# Without the libraries: each file for itself. System headers come last, so that the cross
# compiler's own C library is found first.
ARM_SRC := $(filter-out %_avx2.c %_avxvnni.c %_avx512.c %_amx.c,$(ALL_SRC))
arm-check: ## compile the library for aarch64 (when a cross compiler is there)
	@if echo '#include <stdlib.h>' | $(CROSS_ARM) -E -x c - >/dev/null 2>&1; then \
	    for f in $(ARM_SRC); do \
	        case $$f in *_neon.c) isa='$(NEON)' ;; *) isa= ;; esac; \
	        $(CROSS_ARM) $(BASE_CFLAGS) $$isa -idirafter /usr/include -fsyntax-only $$f || exit 1; \
	    done && echo "arm-check: $(words $(ARM_SRC)) files compile for aarch64"; \
	else \
	    echo "arm-check: skipped, no working $(CROSS_ARM)"; \
	fi

check-arm: ## build for aarch64, test kernels and a model under qemu (when both are there)
	@BUILD=$(BUILD) MAKE="$(MAKE)" CROSS_ARM="$(CROSS_ARM)" tests/scripts/arm.sh

bench: $(BUILD)/smoe-bench $(BUILD)/smoe ## measure kernels, decode and prefill (B=pattern: some)
	@SMOE_BIN=$(BUILD)/smoe $(BUILD)/smoe-bench $(B)

bench-kernels: $(BUILD)/smoe-bench ## measure kernels beside the machine's memory (B='avx512 q4_k')
	@$(BUILD)/smoe-bench kernels $(B)

# ---- installing

BINDIR = $(DESTDIR)$(PREFIX)/bin
LIBDIR = $(DESTDIR)$(PREFIX)/lib
INCLUDEDIR = $(DESTDIR)$(PREFIX)/include

$(BUILD)/smoe.pc: Makefile include/smoe.h FORCE
	@mkdir -p $(@D)
	@printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$${prefix}/lib' 'includedir=$${prefix}/include' '' \
	    'Name: smoe' 'Description: Mixture-of-Experts models larger than memory' \
	    'Version: $(VERSION)' 'Requires.private: $(NEED)' 'Libs: -L$${libdir} -lsmoe' \
	    'Libs.private: -lm -lpthread' 'Cflags: -I$${includedir}' >$@

install: all $(BUILD)/smoe.pc ## install into $(DESTDIR)$(PREFIX)
	install -d "$(BINDIR)" "$(LIBDIR)/pkgconfig" "$(INCLUDEDIR)"
	install -m 755 $(BUILD)/smoe "$(BINDIR)/smoe"
	install -m 644 $(BUILD)/libsmoe.a "$(LIBDIR)/libsmoe.a"
	install -m 755 $(BUILD)/libsmoe.so.$(VERSION) "$(LIBDIR)/libsmoe.so.$(VERSION)"
	ln -sf libsmoe.so.$(VERSION) "$(LIBDIR)/$(SONAME)"
	ln -sf $(SONAME) "$(LIBDIR)/libsmoe.so"
	install -m 644 include/smoe.h "$(INCLUDEDIR)/smoe.h"
	install -m 644 $(BUILD)/smoe.pc "$(LIBDIR)/pkgconfig/smoe.pc"

uninstall: ## remove what install put there
	rm -f "$(BINDIR)/smoe" "$(LIBDIR)/libsmoe.a" "$(LIBDIR)/libsmoe.so" "$(LIBDIR)/$(SONAME)" \
	    "$(LIBDIR)/libsmoe.so.$(VERSION)" "$(INCLUDEDIR)/smoe.h" "$(LIBDIR)/pkgconfig/smoe.pc"

dist: ## pack the committed sources into build/smoe-VERSION.tar.gz
	@mkdir -p $(BUILD)
	git archive --prefix=smoe-$(VERSION)/ -o $(BUILD)/smoe-$(VERSION).tar.gz HEAD

clean: ## remove what was built
	rm -rf $(BUILD)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

FORCE:
.PHONY: all check check-all asan ubsan tsan fuzz fuzzers fuzz-replay lint tidy format arm-check \
        check-arm bench bench-kernels install uninstall dist clean help FORCE
.SECONDARY:

-include $(patsubst %.o,%.d,$(LIB_OBJ) $(CLI_OBJ) $(TEST_OBJ) $(BENCH_OBJ) $(FUZZ_OBJ) \
    $(FUZZ_DRIVER_OBJ))
