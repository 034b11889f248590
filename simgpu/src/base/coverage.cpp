#include "base/coverage.hpp"

#include <cerrno>
#include <mutex>
#include <string>
#include <unordered_set>

#include <fcntl.h>
#include <unistd.h>

#include "base/options.hpp"
#include "base/symbol_table.hpp"

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

// What was noted before.
template <class T>
class Known {
 public:
  bool is_new(const T& what) {
    const std::lock_guard lock(mutex_);
    return all_.insert(what).second;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<T> all_;
};

}  // namespace

void cover_call(const char* function) {
  if (!options().coverage.empty()) append("call", function);
}

void cover_plan(const std::string& problem) {
  static auto* const known = new Known<std::string>;
  if (!options().coverage.empty() && known->is_new(problem)) append("plan", problem);
}

void cover_kernel(const void* kernel) {
  static auto* const known = new Known<const void*>;
  if (options().coverage.empty() || !known->is_new(kernel)) return;
  for (const std::string& name : mangled_names(kernel)) append("kernel", name);
}

}  // namespace simgpu
