#pragma once

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "simgpu/engine/report.hpp"

namespace simgpu::test {

/// Takes the reports of its scope, which then are no failure of the process.
class FindingCollector {
 public:
  FindingCollector() {
    set_report_sink([this](const Report& report) {
      const std::lock_guard lock(mutex_);
      reports_.push_back(report);
    });
  }
  FindingCollector(const FindingCollector&) = delete;
  FindingCollector& operator=(const FindingCollector&) = delete;
  ~FindingCollector() { set_report_sink({}); }

  std::vector<Report> reports() const {
    const std::lock_guard lock(mutex_);
    return reports_;
  }
  /// True if there is exactly one report, of this kind and with this text in it.
  bool only(Finding finding, const std::string& text) const {
    const std::vector<Report> all = reports();
    return all.size() == 1 && all[0].finding == finding &&
           all[0].text.find(text) != std::string::npos;
  }
  /// What was reported, for messages of tests.
  std::string text() const {
    std::string all;
    for (const Report& report : reports())
      all += name(report.finding) + (": " + report.text) + "\n";
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Report> reports_;
};

}  // namespace simgpu::test
