#include "support/step_log.hpp"

#include <cmath>
#include <limits>

#include "lockstep/core/error.hpp"

namespace examples {

StepLog::StepLog(const std::filesystem::path& path, bool goes_on)
    : out_(path, goes_on ? std::ios::app : std::ios::out) {
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
}

}  // namespace examples
