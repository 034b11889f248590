#include "kernels/warp_requests.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace simgpu {
namespace {

constexpr std::uint64_t most_blocks = 2;          // of a launch: others do alike
constexpr std::uint64_t most_accesses = 1 << 20;  // of a block
constexpr std::uintptr_t sector = 32;
constexpr unsigned word = 4, banks = 32;

constexpr std::uintptr_t widest = 16;

/// Which of the 16 bytes that it lies in an access has; 0 if it lies in several.
unsigned mask_of(const MemoryAccess& access) {
  const std::uintptr_t offset = access.address % widest;
  if (offset + access.bytes > widest) return 0;
  return ((1u << access.bytes) - 1) << offset;
}

std::uint64_t scaled(std::uint64_t count, double by) {
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(count) * by));
}

}  // namespace

RequestCounts& RequestCounts::operator+=(const RequestCounts& other) {
  requests += other.requests;
  sectors += other.sectors;
  ideal_sectors += other.ideal_sectors;
  shared_wavefronts += other.shared_wavefronts;
  ideal_shared_wavefronts += other.ideal_shared_wavefronts;
  atomics += other.atomics;
  return *this;
}

void WarpRequests::begin_launch(bool is_counted) {
  global_.clear();  // of a launch that was stopped
  shared_.clear();
  noted_ = left_out_ = 0;
  is_counted_ = is_counted;
  is_noted_ = false;
  counts_ = {};
  blocks_ = 0;
}

void WarpRequests::begin_block() {
  end_block();
  is_noted_ = is_counted_ && blocks_ < most_blocks;
  if (is_noted_) ++blocks_;
}

void WarpRequests::note_global(unsigned thread, const MemoryAccess& access) {
  note(global_, thread, access);
}

void WarpRequests::note_shared(unsigned thread, const MemoryAccess& access) {
  note(shared_, thread, access);
}

void WarpRequests::note(std::vector<Warp>& warps, unsigned thread, const MemoryAccess& access) {
  if (access.kind == AccessKind::atomic) {
    ++counts_.atomics;
    return;
  }
  if (noted_ == most_accesses) {
    ++left_out_;
    return;
  }
  ++noted_;
  const unsigned warp = thread / lanes, lane = thread % lanes;
  if (warp >= warps.size()) warps.resize(warp + 1);
  Lane& own = warps[warp].lane[lane];
  if (joins(own, access)) return;
  Place& place = warps[warp].places[access.place];
  const std::uint32_t time = place.times[lane]++;
  if (time >= place.requests.size()) place.requests.resize(time + 1);
  Request& request = place.requests[time];
  Open& open = own.open[own.next++ % own.open.size()];
  open.address = access.address / widest * widest;
  open.bytes = mask_of(access);
  open.kind = access.kind;
  open.places.assign(1, access.place);
  open.place = &place;
  open.time = time;
  open.piece = request.size();
  request.push_back({access.address, access.bytes, lane});
}

/// Whether it is a part of a vector that the lane has begun, to which it is added.
bool WarpRequests::joins(Lane& lane, const MemoryAccess& access) {
  const unsigned mask = mask_of(access);
  for (Open& open : lane.open) {
    const bool is_beside = open.place != nullptr && open.kind == access.kind &&
                           open.address == access.address / widest * widest &&
                           (open.bytes & mask) == 0 && mask != 0;
    if (!is_beside || std::ranges::find(open.places, access.place) != open.places.end()) continue;
    open.bytes |= mask;
    open.places.push_back(access.place);
    const auto first = static_cast<unsigned>(std::countr_zero(open.bytes));
    Piece& piece = open.place->requests[open.time][open.piece];
    piece.address = open.address + first;
    piece.bytes = static_cast<unsigned>(std::bit_width(open.bytes)) - first;
    return true;
  }
  return false;
}

void WarpRequests::end_block() {
  if (!is_noted_) return;
  is_noted_ = false;
  RequestCounts found;
  const auto count = [&](std::vector<Warp>& warps, auto counts_of) {
    for (Warp& warp : warps)
      for (auto& [code, place] : warp.places)
        for (Request& request : place.requests) found += counts_of(request);
    warps.clear();
  };
  count(global_, global_counts);
  count(shared_, shared_counts);
  if (left_out_ > 0) {
    const double by = 1 + static_cast<double>(left_out_) / static_cast<double>(noted_);
    for (std::uint64_t* each : {&found.requests, &found.sectors, &found.ideal_sectors,
                                &found.shared_wavefronts, &found.ideal_shared_wavefronts})
      *each = scaled(*each, by);
  }
  counts_ += found;
  noted_ = left_out_ = 0;
}

RequestCounts WarpRequests::global_counts(Request& request) {
  std::ranges::sort(request, {}, &Piece::address);
  std::uint64_t bytes = 0, sectors = 0;
  std::uintptr_t end = 0, last_sector = ~std::uintptr_t{0};
  for (const Piece& piece : request) {
    const std::uintptr_t piece_end = piece.address + piece.bytes;
    if (piece_end > end) bytes += piece_end - std::max(end, piece.address);
    end = std::max(end, piece_end);
    for (std::uintptr_t each = piece.address / sector; each <= (piece_end - 1) / sector; ++each)
      if (last_sector == ~std::uintptr_t{0} || each > last_sector) {
        ++sectors;
        last_sector = each;
      }
  }
  return {.requests = 1, .sectors = sectors, .ideal_sectors = (bytes + sector - 1) / sector};
}

/// Threads are served in groups whose accesses have at most 128 bytes: 32, 16 or 8 of them. Those
/// that want the same word of a bank are served together.
RequestCounts WarpRequests::shared_counts(const Request& request) {
  unsigned most = 0;
  for (const Piece& piece : request) most = std::max(most, piece.bytes);
  const unsigned threads = most <= word ? lanes : most <= 2 * word ? lanes / 2 : lanes / 4;
  RequestCounts found;
  for (unsigned first = 0; first < lanes; first += threads) {
    std::array<std::vector<std::uintptr_t>, banks> wanted;
    for (const Piece& piece : request)
      if (piece.lane - first < threads)
        for (std::uintptr_t at = piece.address / word;
             at <= (piece.address + piece.bytes - 1) / word; ++at)
          if (auto& words = wanted[at % banks]; std::ranges::find(words, at) == words.end())
            words.push_back(at);
    std::size_t wavefronts = 0;
    for (const auto& words : wanted) wavefronts = std::max(wavefronts, words.size());
    found.shared_wavefronts += wavefronts;
    found.ideal_shared_wavefronts += wavefronts > 0;
  }
  return found;
}

}  // namespace simgpu
