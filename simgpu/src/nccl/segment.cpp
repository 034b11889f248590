#include "nccl/segment.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nccl/failure.hpp"

namespace simgpu::nccl {
namespace {

constexpr std::uint64_t reserved = std::uint64_t{1} << 34;  // address space only
constexpr std::uint64_t step = std::uint64_t{1} << 20;

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::uint64_t slots_begin() { return 256; }

std::uint64_t slots_end(int ranks) {
  const std::uint64_t channels = point_to_point(ranks);
  return round_up(slots_begin() + channels * Segment::ring * sizeof(CallSlot), 4096);
}

[[noreturn]] void fail(const char* what) {
  throw Failure(ncclSystemError, std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

Segment Segment::map(int ranks, int descriptor) {
  Segment segment;
  const int flags = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* base =
      mmap(nullptr, reserved, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, descriptor, 0);
  if (base == MAP_FAILED) fail("cannot reserve address space for a communicator");
  madvise(base, reserved, MADV_DONTDUMP);
  segment.base_ = static_cast<std::byte*>(base);
  segment.data_begin_ = slots_end(ranks);
  return segment;
}

Segment Segment::create(int ranks, const Token& token) {
  const int descriptor = memfd_create("simgpu-nccl", MFD_CLOEXEC);
  if (descriptor < 0) fail("cannot make shared memory for a communicator");
  Segment segment;
  segment.descriptor_ = descriptor;  // closed by `segment` if the next steps fail
  Segment mapped = map(ranks, descriptor);
  std::swap(mapped.descriptor_, segment.descriptor_);
  mapped.grow(mapped.data_begin_);
  mapped.header()->token = token;
  return mapped;
}

std::optional<Segment> Segment::open(int process, int descriptor, int ranks, const Token& token) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return std::nullopt;
  struct stat status {};
  const bool is_plausible = fstat(opened, &status) == 0 && S_ISREG(status.st_mode) &&
                            status.st_uid == geteuid() &&
                            static_cast<std::uint64_t>(status.st_size) >= slots_end(ranks);
  std::optional<Segment> segment;
  if (is_plausible) segment = map(ranks, opened);
  close(opened);
  if (segment && segment->header()->token != token) segment.reset();
  return segment;
}

Segment Segment::replica(int ranks) {
  Segment segment = map(ranks, -1);
  segment.file_size_ = reserved;
  return segment;
}

Segment::~Segment() {
  if (base_) munmap(base_, reserved);
  if (descriptor_ >= 0) close(descriptor_);
}

void Segment::swap(Segment& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(base_, other.base_);
  std::swap(data_begin_, other.data_begin_);
  std::swap(file_size_, other.file_size_);
  std::swap(live_, other.live_);
}

CallSlot& Segment::slot(Channel channel, std::uint64_t number) const {
  auto* slots = reinterpret_cast<CallSlot*>(base_ + slots_begin());
  return slots[channel * ring + number % ring];
}

void Segment::grow(std::uint64_t end) {
  if (end <= file_size_) return;
  if (end > reserved)
    throw Failure(ncclSystemError, "more than " + std::to_string(reserved) +
                                       " bytes of collectives are in flight on one rank");
  const std::uint64_t size = round_up(end, step);
  if (ftruncate(descriptor_, static_cast<off_t>(size)) != 0)
    fail("cannot grow a communicator's shared memory");
  file_size_ = size;
}

std::uint64_t Segment::allocate(std::uint64_t bytes, const CallSlot& slot) {
  if (bytes == 0) return data_begin_;
  std::erase_if(live_, [](const Live& live) {
    return live.slot->readers.load(std::memory_order_acquire) == 0;
  });
  const std::uint64_t size = round_up(bytes, 64);
  std::uint64_t begin = data_begin_;
  auto place = live_.begin();
  for (; place != live_.end() && place->begin - begin < size; ++place) begin = place->end;
  grow(begin + size);
  live_.insert(place, {begin, begin + size, &slot});
  return begin;
}

}  // namespace simgpu::nccl
