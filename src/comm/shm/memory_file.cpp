#include "comm/shm/memory_file.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/token.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm::shm {
namespace {

void check(bool done, const char* call) {
  LOCKSTEP_CHECK(done, Unsupported, call, " of shared memory: ", std::strerror(errno));
}

// A file that grows past the limit is answered with a signal, which would end the process.
void check_file_limit(std::size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  LOCKSTEP_CHECK(bytes <= limit.rlim_cur, Unsupported, "shared memory of ", bytes,
                 " bytes is more than the limit on files, ", limit.rlim_cur,
                 " bytes; raise it (ulimit -f)");
}

struct flock lock_of(int place) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = place;
  lock.l_len = 1;
  return lock;
}

}  // namespace

// Before Linux 6.13 a signal to this thread undoes the whole call; where they come
// often, as those of a profiler, it would never get to its end. None of them is lost.
int reserve_in_file(int file, std::size_t begin, std::size_t bytes) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = EINTR;  // also where the process was stopped
  while (error == EINTR)
    error = posix_fallocate(file, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

MemoryFile::MemoryFile(std::size_t bytes, std::size_t more)
    : bytes_(bytes + page_bytes), token_(make_token()) {
  check_file_limit(bytes_ + more);
  file_ = memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  LOCKSTEP_CHECK(file_ >= 0 || (errno != EMFILE && errno != ENFILE), Unsupported,
                 "memfd_create of shared memory: ", std::strerror(errno),
                 "; raise the limit (ulimit -n): each group has some descriptors");
  check(file_ >= 0, "memfd_create");
  try {
    check(ftruncate(file_, static_cast<off_t>(bytes_ + more)) == 0, "ftruncate");
    // Nobody can take memory away that another still uses.
    check(fcntl(file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0, "sealing");
    errno = reserve_in_file(file_, 0, page_bytes);
    check(errno == 0, "posix_fallocate");
    map();
  } catch (...) {
    close(file_);
    throw;
  }
  std::memcpy(memory_, token_.data(), token_.size());
}

MemoryFile::MemoryFile(const std::string& address, std::size_t bytes, std::size_t more)
    : bytes_(bytes + page_bytes) {
  lockstep::detail::TextReader words(address);
  int process = 0, descriptor = 0;
  words >> process >> descriptor >> token_;
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  const auto require = [&](bool is_ours) {
    LOCKSTEP_CHECK(is_ours, Unsupported, "what lies at ", path,
                   " is not this job's shared memory: the ranks see different processes");
  };
  // In another container the same numbers may be another process'. What may be a device, or a file
  // whose locks would go with our descriptor, is not even opened.
  struct stat status {};
  const bool is_found = stat(path.c_str(), &status) == 0;
  LOCKSTEP_CHECK(is_found, Unsupported, "shared memory at ", path, ": ", std::strerror(errno));
  require(S_ISREG(status.st_mode) && status.st_size == static_cast<off_t>(bytes_ + more));
  file_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  LOCKSTEP_CHECK(file_ >= 0, Unsupported, "shared memory at ", path, ": ", std::strerror(errno));
  try {
    std::string found(token_.size(), '\0');
    require(pread(file_, found.data(), found.size(), 0) == static_cast<ssize_t>(found.size()) &&
            equal_in_constant_time(found, token_));
    map();
  } catch (...) {
    close(file_);
    throw;
  }
}

MemoryFile::~MemoryFile() {
  munmap(memory_, bytes_);
  close(file_);
}

void MemoryFile::map() {
  void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  check(memory != MAP_FAILED, "mmap");
  memory_ = static_cast<std::byte*>(memory);
}

std::string MemoryFile::address() const {
  return std::to_string(getpid()) + ' ' + std::to_string(file_) + ' ' + token_;
}

int MemoryFile::open_again() const {
  const int file = open(("/proc/self/fd/" + std::to_string(file_)).c_str(), O_RDWR | O_CLOEXEC);
  check(file >= 0, "opening");
  return file;
}

std::byte* MemoryFile::data() const { return memory_ + page_bytes; }

void MemoryFile::reserve(std::size_t begin, std::size_t bytes) {
  const int error = reserve_in_file(file_, page_bytes + begin, bytes);
  LOCKSTEP_CHECK(error == 0, Unsupported, "there is no room for ", bytes,
                 " bytes of shared memory: ", std::strerror(error));
}

// Locks of an open file: the system takes them back with the last descriptor of the process. That
// it is there can be seen from other containers too, and of a process that nobody has waited for.
void MemoryFile::hold(int place) {
  struct flock lock = lock_of(place);
  check(fcntl(file_, F_OFD_SETLK, &lock) == 0, "locking a place");
}

bool MemoryFile::is_held(int place) const noexcept {
  struct flock lock = lock_of(place);
  return fcntl(file_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace lockstep::comm::shm
