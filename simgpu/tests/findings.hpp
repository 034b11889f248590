#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/report.hpp"

/// @file
/// What the simulated GPU finds during a test.

namespace simgpu::testing {

/// Collects reports, for a scope, instead of failing the process. One at a time.
class Findings {
 public:
  Findings() {
    set_report_sink([this](const Report& report) {
      const std::lock_guard lock(mutex_);
      reports_.push_back(report);
    });
  }
  Findings(const Findings&) = delete;
  Findings& operator=(const Findings&) = delete;
  ~Findings() { set_report_sink(nullptr); }

  std::vector<Report> all() const {
    const std::lock_guard lock(mutex_);
    return reports_;
  }
  /// The kinds of the findings, in their order.
  std::vector<Finding> kinds() const {
    std::vector<Finding> found;
    for (const Report& report : all()) found.push_back(report.finding);
    return found;
  }
  /// True if there is one finding, of this kind and with these words in its text.
  bool only(Finding finding, const std::string& words) const {
    const std::vector<Report> found = all();
    return found.size() == 1 && found[0].finding == finding &&
           found[0].text.find(words) != std::string::npos;
  }
  /// All texts, one after the other.
  std::string text() const {
    std::string joined;
    for (const Report& report : all()) joined += report.text + "\n";
    return joined;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Report> reports_;
};

}  // namespace simgpu::testing
