# Ways into a disk beside each other in one machine, by turns: A B A B.
#
#   ways [--zeroes] ROUNDS SECONDS WAY...
#
# A WAY is `ublk`, `loop` (FUSE over io_uring), `loop-classic` (/dev/fuse) or `zram` (the kernel's).
# fio reads and writes 4 KiB at random, alone and 16 at once: pages that shrink to half, or zeroes,
# which cost an emulated CPU little beside the way. The last lines are a table: thousands a second and
# the CPU time of a request in all that works for it, medians of the rounds; then `WAYS rc=…`. Times
# in a guest compare only with each other.
. ./lib.sh

pages=--buffer_compress_percentage=50
if [ "$1" = --zeroes ]; then
  pages=--zero_buffers=1
  shift
fi
rounds=$1 seconds=$2
shift 2
size=48M
rc=0

# serve WAY: the disk of it is at /run/WAY.disk then.
serve() {
  local transport place=/run/$1/dev/zram0 left=600
  case $1 in
    ublk) transport=ublk ;;
    loop) transport=fuse ;;
    loop-classic) transport=fuse-classic ;;
    zram)
      modprobe zram num_devices=1
      echo lz4 > /sys/block/zram0/comp_algorithm
      echo $size > /sys/block/zram0/disksize
      ln -s /dev/zram0 "/run/$1.disk"
      return
      ;;
    *) say "$1: there are ublk, loop, loop-classic and zram" && return 1 ;;
  esac
  rampack --root "/run/$1" serve --transport $transport --size $size > "/run/$1.log" 2>&1 &
  until [ -e "$place" ]; do
    [ $((left -= 1)) -gt 0 ] || { cat "/run/$1.log"; return 1; }
    sleep 0.1
  done
  ln -s "$(readlink -f "$place")" "/run/$1.disk"
  cat "/run/$1.log"
}

# Seconds that the CPUs have worked.
busy() {
  awk '/^cpu / { printf "%.2f", ($2 + $3 + $4 + $7 + $8) / 100 }' /proc/stat
}

# load WAY WHAT DEPTH SECONDS: prints the requests of a second, and the CPU time of one, in us.
load() {
  local before after said
  before=$(busy)
  said=$(fio --minimal --name=way --filename="/run/$1.disk" --size=$size --rw="$2" --iodepth="$3" \
    --ioengine=libaio --direct=1 --bs=4k --norandommap $pages --time_based \
    --runtime="${4}s") || return 1
  after=$(busy)
  # KiB and requests a second come sixth and eighth for reads, and 41 places later for writes.
  echo "$said" | awk -F ";" -v before="$before" -v after="$after" -v what="$2" '
    { at = what ~ /read/ ? 0 : 41; printf "%d %.1f\n", $(8 + at), (after - before) * 4e6 / ($(6 + at) + 1) }'
}

for way in "$@"; do
  serve "$way" || exit 7
  load "$way" write 16 1 > /dev/null || exit 7
done
for round in $(seq "$rounds"); do
  for way in "$@"; do
    for load in "randread 1" "randwrite 1" "randread 16" "randwrite 16"; do
      load "$way" $load "$seconds" > /run/figures || rc=1
      say "round $round of $rounds: $way, $load: $(cat /run/figures)"
      echo "$way $load $(cat /run/figures)" >> /run/all
    done
  done
done
for way in "$@"; do
  [ "$way" = zram ] || timeout 60 rampack --root "/run/$way" stop || rc=1
done

# median COLUMN WAY LOAD
median() {
  awk -v at="$1" -v key="$2 $3" '$1 " " $2 " " $3 == key { print $at }' /run/all | sort -n |
    awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

echo
echo "way	alone, thousands a second: read	write	16 at once: read	write	CPU us of 16: read	write"
for way in "$@"; do
  row=$way
  for load in "randread 1" "randwrite 1" "randread 16" "randwrite 16"; do
    row+="	$(median 4 "$way" "$load" | awk '{ printf "%.2f", $1 / 1000 }')"
  done
  echo "$row	$(median 5 "$way" "randread 16")	$(median 5 "$way" "randwrite 16")"
done
kernel_notes
echo "WAYS rc=$rc"
exit $rc
