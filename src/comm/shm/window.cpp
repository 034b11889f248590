#include "comm/shm/window.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lockstep/core/error.hpp"

namespace lockstep::comm::shm {
namespace {

constexpr std::size_t rounded(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

bool is_limited(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// Twice the host's memory for all parts together, of which pages are taken as they are needed: no
// part is too small, and a process can map those of many groups.
std::size_t heap_bytes_for(int ranks) {
  if (is_limited(RLIMIT_FSIZE)) return 0;
  constexpr std::size_t most = std::size_t{4} << 40;
  const auto memory = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes;
  return std::min(2 * memory, most) / static_cast<std::size_t>(ranks) / page_bytes * page_bytes;
}

std::size_t heap_bytes_in(const std::string& address) {
  const std::string last = address.substr(address.find_last_of(' ') + 1);
  return std::strtoull(last.c_str(), nullptr, 10);
}

constexpr std::size_t board_bytes = rounded(sizeof(Window::Board), page_bytes);

}  // namespace

struct Window::Head {
  std::atomic<int> abort_state{0};  // 1: being written, 2: there
  char reason[4000];
};

// Memory of a new file is zero.
Window::Window(int ranks)
    : ranks_(ranks),
      heap_bytes_(heap_bytes_for(ranks)),
      area_bytes_(area_bytes()),
      file_(bytes(), all_heap_bytes()) {
  file_.reserve(0, page_bytes);
  new (&head()) Head;
}

Window::Window(int ranks, const std::string& address)
    : ranks_(ranks),
      heap_bytes_(heap_bytes_in(address)),
      area_bytes_(area_bytes()),
      file_(address, bytes(), all_heap_bytes()) {}

void Window::enter(int rank) {
  file_.reserve(page_bytes + static_cast<std::size_t>(rank) * area_bytes_, area_bytes_);
  Board& own = *new (&board(rank)) Board;
  for (int to = 0; to < ranks_; ++to) {
    new (&mailbox(rank, to)) Mailbox;
    for (std::uint32_t slot = 0; slot < slots; ++slot) new (&piece(rank, to, slot)) Piece;
  }
  static_assert(sizeof own.cores == sizeof(cpu_set_t));
  sched_getaffinity(0, sizeof own.cores, reinterpret_cast<cpu_set_t*>(own.cores));
  own.maps_heap = open_heap(rank);
  file_.hold(rank);
}

bool Window::open_heap(int rank) {
  if (heap_bytes_ == 0 || is_limited(RLIMIT_AS)) return false;
  try {
    heap_ =
        std::make_shared<Heap>(file_, Heap::Parts{file_.mapped_bytes(), heap_bytes_, ranks_, rank});
    return true;
  } catch (const Unsupported&) {
    return false;
  }
}

Heap* Window::heap() const {
  for (int rank = 0; rank < ranks_; ++rank)
    if (!board(rank).maps_heap) return nullptr;
  return heap_.get();
}

// --- where things lie ----------------------------------------------------------------------------
// The head, then for each rank its board, two stages and the mailboxes to all ranks.

std::size_t Window::piece_bytes() const {
  const auto pairs = static_cast<std::size_t>(ranks_) * static_cast<std::size_t>(ranks_);
  return std::clamp<std::size_t>(rounded((4U << 20) / pairs, 64), 4U << 10, 256U << 10);
}

std::size_t Window::mailbox_bytes() const {
  return sizeof(Mailbox) + slots * rounded(sizeof(Piece) + piece_bytes(), 64);
}

std::size_t Window::area_bytes() const {
  return board_bytes + 2 * stage_bytes +
         rounded(static_cast<std::size_t>(ranks_) * mailbox_bytes(), page_bytes);
}

std::size_t Window::bytes() const {
  return page_bytes + static_cast<std::size_t>(ranks_) * area_bytes_;
}

Window::Head& Window::head() const { return *reinterpret_cast<Head*>(file_.data()); }

std::byte* Window::area(int rank) const {
  return file_.data() + page_bytes + static_cast<std::size_t>(rank) * area_bytes_;
}

Window::Board& Window::board(int rank) const { return *reinterpret_cast<Board*>(area(rank)); }

std::byte* Window::stage(int rank, std::uint32_t step) const {
  return area(rank) + board_bytes + (step & 1U) * stage_bytes;
}

Window::Mailbox& Window::mailbox(int from, int to) const {
  return *reinterpret_cast<Mailbox*>(area(from) + board_bytes + 2 * stage_bytes +
                                     static_cast<std::size_t>(to) * mailbox_bytes());
}

Window::Piece& Window::piece(int from, int to, std::uint32_t number) const {
  std::byte* const first = reinterpret_cast<std::byte*>(&mailbox(from, to) + 1);
  return *reinterpret_cast<Piece*>(first +
                                   number % slots * rounded(sizeof(Piece) + piece_bytes(), 64));
}

// --- news of all ---------------------------------------------------------------------------------

bool Window::is_crowded() const {
  int cores = 0;
  for (std::size_t word = 0; word < std::size(Board{}.cores); ++word) {
    std::uint64_t any = 0;
    for (int rank = 0; rank < ranks_; ++rank) any |= board(rank).cores[word];
    cores += std::popcount(any);
  }
  return cores < ranks_;
}

void Window::abort(const std::string& reason) noexcept {
  Head& head = this->head();
  int none = 0;
  if (!head.abort_state.compare_exchange_strong(none, 1)) return;
  const std::size_t size = std::min(reason.size(), sizeof head.reason - 1);
  std::memcpy(head.reason, reason.data(), size);
  head.reason[size] = '\0';
  head.abort_state.store(2);
}

const char* Window::abort_reason() const {
  return head().abort_state.load() == 2 ? head().reason : nullptr;
}

}  // namespace lockstep::comm::shm
