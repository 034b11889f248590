#include "simgpu/engine/coverage.hpp"

#include <cerrno>
#include <mutex>
#include <string>
#include <unordered_set>

#include <fcntl.h>
#include <unistd.h>

#include "simgpu/engine/options.hpp"
#include "simgpu/engine/symbol_table.hpp"

namespace simgpu {
namespace {

// Each line goes out in one write at the file's end, which processes cannot tear apart.
void append(const std::string& kind, const std::string& name) {
  const std::string line =
      std::string(program_invocation_short_name) + ' ' + kind + ' ' + name + '\n';
  const int file =
      ::open(options().coverage.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return;
  // A line that cannot be written is one that the report will miss.
  [[maybe_unused]] const ssize_t written = ::write(file, line.data(), line.size());
  ::close(file);
}

}  // namespace

void cover_call(const char* function) {
  if (!options().coverage.empty()) append("call", function);
}

void cover_kernel(const void* kernel) {
  if (options().coverage.empty()) return;
  static std::mutex mutex;
  static auto* const known = new std::unordered_set<const void*>;
  {
    const std::lock_guard lock(mutex);
    if (!known->insert(kernel).second) return;
  }
  for (const std::string& name : mangled_names(kernel)) append("kernel", name);
}

}  // namespace simgpu
