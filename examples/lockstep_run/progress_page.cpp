#include "lockstep_run/progress_page.hpp"

#include <atomic>
#include <cstring>

#include <sys/mman.h>

namespace run {
namespace {

/// The same as in src/comm/run_progress.cpp.
struct Page {
  char mark[8];
  std::atomic<std::int64_t> step, first, saved, long_work, asked;
};
constexpr char mark[] = "lockstep";

}  // namespace

ProgressPage::ProgressPage()
    : file_(checked(memfd_create("step", MFD_CLOEXEC | MFD_ALLOW_SEALING), "memfd_create")) {
  checked(ftruncate(file_.get(), sizeof(Page)), "ftruncate");
  // A rank that cut it short would end this process.
  checked(fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), "fcntl");
  page_ = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  checked(page_ == MAP_FAILED ? -1 : 0, "mmap");
  Page& page = *static_cast<Page*>(page_);
  for (auto* step : {&page.step, &page.first, &page.saved}) *step = -1;
  std::memcpy(page.mark, mark, sizeof page.mark);
}

ProgressPage::~ProgressPage() {
  if (page_) munmap(page_, sizeof(Page));
}

std::string ProgressPage::path() const {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file_.get());
}

Progress ProgressPage::progress() const {
  const Page& page = *static_cast<const Page*>(page_);
  return {page.step, page.first, page.saved, page.long_work};
}

void ProgressPage::ask() { ++static_cast<Page*>(page_)->asked; }

}  // namespace run
