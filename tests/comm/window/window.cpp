#include "comm/window/window.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/token.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm::window {

struct Window::Head {
  std::atomic<int> abort_state{0};  // 1: being written, 2: there
  char reason[2000];
};

namespace {

constexpr std::size_t page = 4096;

std::size_t pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

void check(bool done, const char* call) {
  LOCKSTEP_CHECK(done, Error, call, " of a window: ", std::strerror(errno));
}

}  // namespace

std::size_t Window::bytes() const {
  const auto ranks = static_cast<std::size_t>(ranks_);
  return pages(sizeof(Head)) + ranks * pages(sizeof(Slot)) + ranks * ranks * pages(sizeof(Mailbox));
}

// Memory of a new file is zero, which is what the constructors of its parts leave too.
Window::Window(int ranks) : ranks_(ranks), name_("/lockstep-" + make_token()) {
  const int file = shm_open(name_.c_str(), O_CREAT | O_EXCL | O_RDWR, S_IRUSR | S_IWUSR);
  check(file >= 0, "shm_open");
  check(ftruncate(file, static_cast<off_t>(bytes())) == 0, "ftruncate");
  map(file);
  new (memory_) Head;
  for (int rank = 0; rank < ranks; ++rank) {
    new (&slot(rank)) Slot;
    for (int to = 0; to < ranks; ++to) new (&mailbox(rank, to)) Mailbox;
  }
}

Window::Window(const std::string& name, int ranks) : ranks_(ranks) {
  const int file = shm_open(name.c_str(), O_RDWR, 0);
  check(file >= 0, "shm_open");
  map(file);
}

void Window::map(int file) {
  void* const memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  check(memory != MAP_FAILED, "mmap");
  memory_ = static_cast<std::byte*>(memory);
}

Window::~Window() {
  munmap(memory_, bytes());
  if (!name_.empty()) shm_unlink(name_.c_str());
}

Window::Slot& Window::slot(int rank) const {
  return *reinterpret_cast<Slot*>(memory_ + pages(sizeof(Head)) +
                                  static_cast<std::size_t>(rank) * pages(sizeof(Slot)));
}

Window::Mailbox& Window::mailbox(int from, int to) const {
  std::byte* const first = reinterpret_cast<std::byte*>(&slot(ranks_));
  return *reinterpret_cast<Mailbox*>(first + static_cast<std::size_t>(from * ranks_ + to) *
                                                 pages(sizeof(Mailbox)));
}

void Window::abort(const std::string& reason) noexcept {
  Head& head = *reinterpret_cast<Head*>(memory_);
  int none = 0;
  if (!head.abort_state.compare_exchange_strong(none, 1)) return;
  const std::size_t size = std::min(reason.size(), sizeof head.reason - 1);
  std::memcpy(head.reason, reason.data(), size);
  head.reason[size] = '\0';
  head.abort_state.store(2);
}

const char* Window::abort_reason() const {
  const Head& head = *reinterpret_cast<const Head*>(memory_);
  return head.abort_state.load() == 2 ? head.reason : nullptr;
}

}  // namespace lockstep::comm::window
