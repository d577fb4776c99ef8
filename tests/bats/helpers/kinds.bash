# Each kind of allocation alone, with each backend: for the files of ways.

# What the backend does not serve is counted as the driver's.
counted_as() {
  case $2 in
  managed | from_pool) echo direct ;;
  *) backend_name "$1" ;;
  esac
}

# count_kinds PROGRAM KINDS: each kind alone, with each backend.
count_kinds() {
  local backend kind
  for backend in $BACKENDS; do
    for kind in $2; do
      count "$backend" "$(counted_as "$backend" "$kind")" "$1" "$kind"
      assert_line "$kind: right"
    done
  done
}
