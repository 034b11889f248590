#include "base/options.hpp"

#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace simgpu {
namespace {

/// An environment variable with another value, or none, for a scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    set(value);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }

 private:
  void set(const char* value) { value ? setenv(name_, value, 1) : unsetenv(name_); }

  const char* name_;
  std::optional<std::string> before_;
};

TEST(SimgpuOptions, GiveEachRankOfTheHostADeviceUnlessToldOtherwise) {
  const Variable unset("LOCKSTEP_SIM_DEVICES", nullptr);
  const Variable local_size("OMPI_COMM_WORLD_LOCAL_SIZE", "4");
  EXPECT_EQ(Options::from_environment().devices, 4);
  const Variable devices("LOCKSTEP_SIM_DEVICES", "2");
  EXPECT_EQ(Options::from_environment().devices, 2);
}

TEST(SimgpuOptions, GiveNoMoreDevicesThanThereCanBe) {
  const Variable unset("LOCKSTEP_SIM_DEVICES", nullptr);
  const Variable local_size("LOCAL_WORLD_SIZE", "64");
  EXPECT_EQ(Options::from_environment().devices, 16);
}

TEST(SimgpuOptions, RefuseValuesThatMeanNothing) {
  const Variable devices("LOCKSTEP_SIM_DEVICES", "17");
  EXPECT_THROW(Options::from_environment(), std::invalid_argument);
}

}  // namespace
}  // namespace simgpu
