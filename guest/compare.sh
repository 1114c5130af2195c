# Kinds of swap beside each other in one machine, one after the other and again: A B A B.
#
#   compare ROUNDS KIND... -- MIB HOGS PASSES SECONDS [OPTIONS OF hog]
#
# A KIND is one word with its options, as in `pressure`: zswap "rampack --size 1G". Two builds are
# "rampack --size 1G" and "./before --size 1G", with the program `before` as a `--file`. A word that
# begins with `--` is an option of `pressure`, for all of them. The last line is `COMPARE` and an
# object: of each kind the median, least and most of the seconds, and the median as a multiple of
# the first kind's. The status is 0 if all runs had it.
. ./lib.sh

rounds=$1
shift
kinds=()
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    --swappiness | --mglru)
      options+=("$1" "$2")
      shift
      ;;
    --*) options+=("$1") ;;
    *) kinds+=("$1") ;;
  esac
  shift
done
shift
status=0
for round in $(seq "$rounds"); do
  for number in "${!kinds[@]}"; do
    say "round $round of $rounds: ${kinds[number]}"
    rm -f /run/stop /run/hog.*
    # The words of a kind are its options.
    bash ./pressure.sh "${options[@]}" ${kinds[number]} -- "$@" | tee /run/output || status=1
    [ "${PIPESTATUS[0]}" -eq 0 ] || status=1
    sed -n 's/^RESULT //p' /run/output >> "/run/results.$number"
  done
done

# The values of `name=` in a file, in order.
values() {
  sed -n "s/.* $1=\([0-9.]*\).*/\1/p" "$2" | sort -n
}

echo
echo "median (least to most) of $rounds rounds of $* each"
for number in "${!kinds[@]}"; do
  for name in hog_seconds daemon_cpu_seconds swapped_out swapped_in from_memory; do
    values $name "/run/results.$number" | awk -v name=$name -v kind="${kinds[number]}" '
      { all[NR] = $1 }
      END {
        median = NR % 2 ? all[(NR + 1) / 2] : (all[NR / 2] + all[NR / 2 + 1]) / 2
        print name, median + 0, all[1] + 0, all[NR] + 0, kind
      }'
  done
done | awk -v runs="$*" '
  {
    kind = $5
    for (i = 6; i <= NF; i++) kind = kind " " $i
    if (!(kind in seen)) { seen[kind] = ++kinds; names[kinds] = kind }
    i = seen[kind]; value[i, $1] = $2; least[i, $1] = $3; most[i, $1] = $4
  }
  END {
    for (i = 1; i <= kinds; i++) {
      ratio = value[i, "hog_seconds"] / value[1, "hog_seconds"]
      printf "%-50s %6.1f s (%.1f to %.1f), %.2f x, daemon %.1f s, %d out, %d in, %s %% from memory\n",
        names[i], value[i, "hog_seconds"], least[i, "hog_seconds"], most[i, "hog_seconds"], ratio,
        value[i, "daemon_cpu_seconds"], value[i, "swapped_out"], value[i, "swapped_in"],
        value[i, "from_memory"]
      json = json sprintf("%s{\"kind\":\"%s\",\"seconds\":%s,\"least\":%s,\"most\":%s,\"ratio\":%.3f,\"daemon_cpu_seconds\":%s,\"swapped_out\":%d,\"swapped_in\":%d,\"from_memory_percent\":%s}",
        i > 1 ? "," : "", names[i], value[i, "hog_seconds"], least[i, "hog_seconds"],
        most[i, "hog_seconds"], ratio, value[i, "daemon_cpu_seconds"], value[i, "swapped_out"],
        value[i, "swapped_in"], value[i, "from_memory"])
    }
    printf "COMPARE {\"hog\":\"%s\",\"kinds\":[%s]}\n", runs, json
  }'
exit $status
