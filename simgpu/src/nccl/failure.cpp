#include "nccl/failure.hpp"

#include <list>
#include <mutex>

namespace simgpu::nccl {
namespace {

// Texts stay: a caller may still read the one before.
struct Texts {
  std::mutex mutex;
  std::list<std::string> all{""};
};

Texts& texts() {
  static auto& instance = *new Texts;  // outlives every thread
  return instance;
}

}  // namespace

ncclResult_t remember(ncclResult_t status, const std::string& message) {
  const std::lock_guard lock(texts().mutex);
  if (texts().all.back() != message) texts().all.push_back(message);
  if (texts().all.size() > 64) texts().all.pop_front();
  return status;
}

const char* last_error() {
  const std::lock_guard lock(texts().mutex);
  return texts().all.back().c_str();
}

}  // namespace simgpu::nccl
