#include "lockstep/core/error.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Error, CarriesMessagePlaceAndStatus) {
  try {
    LOCKSTEP_CHECK(1 + 1 == 3, InvalidArgument, "sum is ", 2, ", not ", 3);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "sum is 2, not 3");
    EXPECT_NE(std::string(error.where().file_name()).find("error_test"), std::string::npos);
  }
  const NcclError failure("ncclAllReduce", 5, "invalid usage");
  EXPECT_EQ(failure.status(), 5);
  EXPECT_EQ(failure.call(), "ncclAllReduce");
}

}  // namespace
}  // namespace lockstep

namespace ls = lockstep;

TEST(ErrorOutsideTheNamespace, TakesItsKindWithAndWithoutAQualifier) {
  const int asked = 3;
  EXPECT_THROW(LOCKSTEP_CHECK(asked < 2, ls::InvalidArgument, "asked for ", asked),
               ls::InvalidArgument);
  EXPECT_THROW(LOCKSTEP_CHECK(asked < 2, ::lockstep::Unsupported, "asked for ", asked),
               ls::Unsupported);
  EXPECT_THROW(LOCKSTEP_CHECK(asked < 2, OutOfMemory, "asked for ", asked), ls::OutOfMemory);
}
