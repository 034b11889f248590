#include "support/step_log.hpp"

#include <cmath>
#include <limits>
#include <locale>

#include "lockstep/core/error.hpp"
#include "lockstep/observe/log.hpp"

namespace examples {

StepLog::StepLog(const std::filesystem::path& path, bool goes_on) : path_(path) {
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  out_.open(path, goes_on ? std::ios::app : std::ios::out);
  out_.imbue(std::locale::classic());
  LOCKSTEP_CHECK(out_, InvalidArgument, "cannot write the log ", path.string());
  out_.precision(std::numeric_limits<double>::max_digits10);
}

void StepLog::write(const Fields& fields) {
  if (!out_.is_open()) return;
  const char* separator = "{";
  for (const auto& [name, value] : fields) {
    out_ << separator << '"' << name << "\": ";
    if (std::isfinite(value))
      out_ << value;
    else
      out_ << "null";
    separator = ", ";
  }
  out_ << "}" << std::endl;
  if (out_ || is_told_) return;
  is_told_ = true;
  LOCKSTEP_LOG(warning, "writing the log ", path_.string(), " failed; it lacks steps from here on");
}

}  // namespace examples
