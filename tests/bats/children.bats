# Programs that inherit the preload: whatever they are and however they are started, they run as without it.

load helpers/load

setup() {
  needs_plain_build "children that are not built with it would refuse to start"
  SHIM_IGNORED="ERROR: ld.so: object '$SHIM' from LD_PRELOAD cannot be preloaded (wrong ELF class: ELFCLASS64): ignored."
}

# compile_child OUTPUT COMPILER…: a program that says what it is told and ends with status 3.
compile_child() {
  "${@:2}" -o "$1" -x c - 2>/dev/null <<'END'
#include <stdio.h>
int main(int argc, char **argv) { puts(argc > 1 ? argv[1] : "hello"); return 3; }
END
}

# assert_child_unchanged STDERR COMMAND…: under a shell with the shim it has the output and status it has without, and only STDERR (of the loader's).
assert_child_unchanged() {
  local expected said=$1
  shift
  run --separate-stderr sh -c '"$@"; echo "status $?"' sh "$@"
  expected=$output
  run --separate-stderr env LD_PRELOAD="$SHIM" CUPLUG_BACKEND=pool CUPLUG_REPORT=1 CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" \
    sh -c '"$@"; echo "status $?"' sh "$@"
  assert_same "$*" "$expected$said" "$output$stderr"
  run find "$BATS_TEST_TMPDIR" -name 'stats.*'
  assert_output ""
}

@test "a 32-bit child runs; the loader says that it ignores the preload (C111)" {
  local child=$BATS_TEST_TMPDIR/child
  # Without a C library for it, so that only the loader is needed.
  gcc -m32 -ffreestanding -nostdlib -fPIE -pie -Wl,-dynamic-linker,/lib/ld-linux.so.2 -o "$child" -x c - 2>/dev/null <<'END' || skip "gcc -m32 does not work"
static int call(int number, int first, const char *second, int third) {
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(first), "c"(second), "d"(third) : "memory");
    return result;
}
void _start(void) {
    static const char text[] = "hello\n";
    call(4, 1, text, sizeof text - 1);
    call(1, 3, text, 0);
}
END
  [ -e /lib/ld-linux.so.2 ] || skip "no 32-bit loader (libc6-i386)"
  run "$child"
  [ "$status" -eq 3 ] || skip "this kernel does not run 32-bit programs"
  assert_child_unchanged "$SHIM_IGNORED" "$child"
}

@test "a static child runs (C111)" {
  compile_child "$BATS_TEST_TMPDIR/child" gcc -static || skip "gcc -static does not work"
  assert_child_unchanged "" "$BATS_TEST_TMPDIR/child"
}

@test "a musl child runs, and its look-ups find what they found (C111)" {
  # Lost otherwise: every program of such a C library, which ends with 127 over a symbol that it does not have.
  command -v musl-gcc >/dev/null || skip "no musl-gcc (musl-tools)"
  compile_child "$BATS_TEST_TMPDIR/child" musl-gcc
  assert_child_unchanged "" "$BATS_TEST_TMPDIR/child"
  musl-gcc -o "$BATS_TEST_TMPDIR/looking" -x c - <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
    void *self = dlopen(NULL, RTLD_NOW);
    printf("%d %d %d\n", dlsym(self, "printf") == (void *)printf, dlsym(RTLD_DEFAULT, "puts") == (void *)puts, dlsym(self, "cuMemAlloc_v2") == NULL);
    return 0;
}
END
  assert_child_unchanged "" "$BATS_TEST_TMPDIR/looking"
  assert_child_unchanged "" sh -c "$BATS_TEST_TMPDIR/looking | grep -x '1 1 1'"
}

@test "a setuid child runs, without the shim (C111)" {
  local child=$BATS_TEST_TMPDIR/child
  [ "$(id -u)" -eq 0 ] || skip "only root can make a program that changes the user"
  gcc -o "$child.plain" -x c - <<'END'
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    char line[4096];
    int mapped = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        mapped |= strstr(line, "libcuplug") != NULL;
    printf("user %d, mapped %d\n", (int)geteuid(), mapped);
    return 3;
}
END
  install -o 65534 -m 4755 "$child.plain" "$child"
  [[ $("$child") == "user 65534,"* ]] || skip "the file system ignores setuid"
  assert_child_unchanged "" "$child"
  run env LD_PRELOAD="$SHIM" "$child.plain"
  assert_output --partial "mapped 1"
}

@test "a child without any environment runs, without the shim (C111)" {
  assert_child_unchanged "" env -i "$(type -P sh)" -c 'echo "${LD_PRELOAD-none}"; grep -c libcuplug /proc/self/maps'
}

@test "a shim that is not there: the loader says so, programs run (C111)" {
  local SHIM=$BATS_TEST_TMPDIR/missing.so
  run --separate-stderr env LD_PRELOAD="$SHIM" sh -c 'env echo hello; exit 4'
  assert_equal "$status $output" "4 hello"
  assert_equal "$(sort -u <<<"$stderr")" \
    "ERROR: ld.so: object '$SHIM' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored."
}

@test "CUPLUG_FOLLOW=0: children of a CUDA program run without the shim; other preloads and their order stay (C111)" {
  local others="$PROGRAMS/next_second.so $PROGRAMS/slow_dlsym.so"
  preload() { echo "$PROGRAMS/next_second.so $SHIM $PROGRAMS/slow_dlsym.so"; }
  with_shim pool CUPLUG_FOLLOW=0 spawner.shared 1 sh -c 'echo "$LD_PRELOAD"'
  assert_success
  assert_equal "$(sort -u <<<"$output")" "$(printf '%s\n' "$others" "started 4, failed 0" | sort)"
  with_shim pool spawner.shared 1 sh -c 'echo "$LD_PRELOAD"'
  assert_equal "$(sort -u <<<"$output")" "$(printf '%s\n' "$(preload)" "started 4, failed 0" | sort)"
  # Before it uses CUDA a process is not touched.
  run --separate-stderr env LD_PRELOAD="$SHIM" CUPLUG_FOLLOW=0 sh -c 'sh -c "echo \$LD_PRELOAD"'
  assert_output "$SHIM"
}

@test "CUPLUG_FOLLOW=0: the entry alone, and under a name of unusual characters" {
  local SHIM=$BATS_TEST_TMPDIR/$'l\'"é#%&*?[]{}~!;|<>()\\\t=,.so'
  cp "$BUILD/libcuplug.so" "$SHIM"
  with_shim pool CUPLUG_FOLLOW=0 spawner.shared 1 sh -c 'echo "${LD_PRELOAD-none}"'
  assert_equal "$(sort -u <<<"$output") $stderr" "none
started 4, failed 0 "
}

@test "storms of vfork, posix_spawn and fork from a CUDA program: git, ssh, bash all run (C112)" {
  # Lost otherwise: git's helpers, which hang when anything is done between the fork and the exec.
  local command
  for command in "bash -c :" "git --version" "ssh -V"; do
    command -v "${command%% *}" >/dev/null || continue
    # shellcheck disable=SC2086
    run timeout 100 env LD_LIBRARY_PATH="$DRIVER_PATH" LD_PRELOAD="$SHIM" CUPLUG_BACKEND=pool "$PROGRAMS/spawner.shared" 84 $command
    assert_success
    assert_line "started 336, failed 0"
  done
}

# trace OUTPUT PRELOAD COMMAND…: what it opens, and the calls that a library with work of its own would make, by name and number.
trace() {
  strace -f -qq -o "$1" -E LD_PRELOAD="$2" "${@:3}" >"$1.stdout" 2>"$1.stderr"
  sed -nE 's/^[0-9]+ +(open|openat|openat2|creat)\(.*"([^"]*)".*/\2/p' "$1" | sort >"$1.opened"
  grep -oE '^[0-9]+ +(clone|clone3|fork|vfork|socket|connect|write|writev|pipe2?|rt_sigaction|futex|memfd_create|ioctl)\(' "$1" | tr -d '0-9 (' |
    sort | uniq -c >"$1.calls"
}

needs_strace() {
  command -v strace >/dev/null || skip "no strace"
  strace -o /dev/null true 2>/dev/null || skip "strace may not trace here"
}

@test "bash, git, python3, ssh open nothing but the shim, start no thread, write nothing more (C112)" {
  # Lost otherwise: the start-up time of every helper program, and sandboxes that allow certain files only.
  needs_strace
  local command name folder=$BATS_TEST_TMPDIR
  gcc -shared -fPIC -o "$folder/empty.so" -x c - <<<'int empty;'
  for command in "bash -c :" "git --version" "$PYTHON -c 1" "ssh -V"; do
    command -v "${command%% *}" >/dev/null || continue
    # shellcheck disable=SC2086
    trace "$folder/warm" "$folder/empty.so" $command
    # shellcheck disable=SC2086
    trace "$folder/empty" "$folder/empty.so" $command
    # shellcheck disable=SC2086
    trace "$folder/shim" "$SHIM" $command
    for name in stdout stderr calls; do
      assert_same "$command: $name" "$(cat "$folder/empty.$name")" "$(cat "$folder/shim.$name")"
    done
    assert_same "$command: opened" "$(sed "s|^$folder/empty.so\$|$SHIM|" "$folder/empty.opened" | sort)" "$(cat "$folder/shim.opened")"
    grep -qxF "$SHIM" "$folder/shim.opened"
  done
}

@test "/bin/true makes the system calls that an empty library costs, and at most two mappings more (C112)" {
  needs_strace
  local folder=$BATS_TEST_TMPDIR name
  gcc -shared -fPIC -o "$folder/empty.so" -x c - <<<'int empty;'
  for name in empty shim; do
    strace -f -qq -o "$folder/$name" -E LD_PRELOAD="$([ $name = shim ] && echo "$SHIM" || echo "$folder/empty.so")" "$(type -P true)"
    sed -nE 's/^[0-9]+ +([a-z0-9_]+)\(.*/\1/p' "$folder/$name" | sort >"$folder/$name.calls"
  done
  assert_same "calls" "$(grep -v '^mmap$' "$folder/empty.calls" | uniq -c)" "$(grep -v '^mmap$' "$folder/shim.calls" | uniq -c)"
  run expr "$(grep -c '^mmap$' "$folder/shim.calls")" - "$(grep -c '^mmap$' "$folder/empty.calls")"
  assert [ "$output" -le 2 ]
}
