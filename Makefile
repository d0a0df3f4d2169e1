# smoe: plain GNU make, no configure step. `make help` lists the targets.

BUILD ?= build
CC ?= cc
PREFIX ?= /usr/local
OPT ?= -O2
WERROR ?=
SAN ?=

.DEFAULT_GOAL := all

# ---- what the machine has

PKG := pkg-config
NEED := json-c libpcre2-8 libutf8proc libxxhash
NEED_CFLAGS := $(shell $(PKG) --cflags $(NEED) 2>/dev/null)
NEED_LIBS := $(shell $(PKG) --libs $(NEED) 2>/dev/null)
ifeq ($(NEED_LIBS),)
ifeq ($(filter help clean,$(MAKECMDGOALS)),)
$(error Missing libraries: need $(NEED) through pkg-config. On Debian or Ubuntu run ./scripts/deps.sh build)
endif
endif
# Optional: io_uring (threads with pread take over without it) and line editing in `smoe chat`.
ifneq ($(shell $(PKG) --exists liburing && echo yes),)
NEED_CFLAGS += -DSMOE_HAVE_URING
NEED_LIBS += $(shell $(PKG) --libs liburing)
endif
ifneq ($(shell $(PKG) --exists libedit && echo yes),)
CLI_CFLAGS += -DSMOE_HAVE_EDIT $(shell $(PKG) --cflags libedit)
CLI_LIBS += $(shell $(PKG) --libs libedit)
endif

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
        -Wvla -Wcast-qual -Wformat=2 -Wundef $(WERROR)
# No contraction: kernels ask for fused multiply-adds where they want them, so that the portable
# reference stays what its source says.
CFLAGS_ALL = -std=c11 -D_GNU_SOURCE $(OPT) -g -fPIC -fvisibility=hidden -fno-math-errno \
             -ffp-contract=off $(WARN) -Iinclude -Isrc $(NEED_CFLAGS) $(SAN) $(CFLAGS)
LDLIBS_ALL = $(NEED_LIBS) -lm -lpthread

# ---- sources

LIB_SRC := $(sort $(filter-out src/cli/%,$(wildcard src/*/*.c)))
CLI_SRC := $(sort $(wildcard src/cli/*.c))
TEST_SRC := $(sort $(wildcard tests/*.c))
BENCH_SRC := $(sort $(wildcard bench/*.c))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/*.c))
obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
LIB_OBJ := $(call obj,$(LIB_SRC))
CLI_OBJ := $(call obj,$(CLI_SRC))
TEST_OBJ := $(call obj,$(TEST_SRC))
BENCH_OBJ := $(call obj,$(BENCH_SRC))

all: $(BUILD)/smoe $(BUILD)/libsmoe.a $(BUILD)/libsmoe.so ## build the program and both libraries

# One kernel source for each instruction set, compiled with its flags and chosen at run time.
$(BUILD)/obj/src/kernels/%_avx2.o: KERNEL_FLAGS = -mavx2 -mfma -mf16c
$(BUILD)/obj/src/kernels/%_avx512.o: KERNEL_FLAGS = -mavx2 -mfma -mf16c -mavx512f -mavx512bw \
    -mavx512vl -mavx512dq -mavx512vnni
ifeq ($(shell uname -m),x86_64)
$(BUILD)/obj/src/kernels/%.o: CFLAGS_ALL += -O3 $(KERNEL_FLAGS)
else
$(BUILD)/obj/src/kernels/%.o: CFLAGS_ALL += -O3
endif
$(CLI_OBJ): CFLAGS_ALL += $(CLI_CFLAGS)
$(TEST_OBJ): CFLAGS_ALL += -Itests

$(BUILD)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

$(BUILD)/libsmoe.a: $(LIB_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/libsmoe.so: $(LIB_OBJ)
	$(CC) -shared -Wl,-soname,libsmoe.so.0 $(SAN) $(LDFLAGS) -o $@ $^ $(LDLIBS_ALL)

$(BUILD)/smoe: $(CLI_OBJ) $(BUILD)/libsmoe.a
	$(CC) $(SAN) $(LDFLAGS) -o $@ $(CLI_OBJ) $(BUILD)/libsmoe.a $(CLI_LIBS) $(LDLIBS_ALL)

$(BUILD)/smoe-test: $(TEST_OBJ) $(BUILD)/libsmoe.a
	$(CC) $(SAN) $(LDFLAGS) -o $@ $(TEST_OBJ) $(BUILD)/libsmoe.a $(LDLIBS_ALL)

$(BUILD)/smoe-bench: $(BENCH_OBJ) $(BUILD)/libsmoe.a
	$(CC) $(SAN) $(LDFLAGS) -o $@ $(BENCH_OBJ) $(BUILD)/libsmoe.a $(LDLIBS_ALL)

# ---- tests

# T=pattern runs only the tests whose names contain it.
check: $(BUILD)/smoe-test $(BUILD)/smoe ## run the fast tests
	SMOE_BIN=$(BUILD)/smoe $(BUILD)/smoe-test $(T)

clean: ## remove what was built
	rm -rf $(BUILD)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

.PHONY: all check clean help
.SECONDARY:

-include $(patsubst %.o,%.d,$(LIB_OBJ) $(CLI_OBJ) $(TEST_OBJ) $(BENCH_OBJ))
