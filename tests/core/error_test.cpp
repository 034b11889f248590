#include "lockstep/core/error.hpp"

#include <locale>
#include <string>

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

// As those of many countries have them.
class GroupedDigits : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(Error, TextsHaveTheSameNumbersWhateverTheProgramsLocaleIs) {
  const std::locale before = std::locale::global(
      std::locale(std::locale::classic(), new GroupedDigits));  // which the locale deletes
  const std::string text = detail::concat("#", 5941, ' ', 0.5, ' ', 1234567.0);
  std::locale::global(before);
  EXPECT_EQ(text, "#5941 0.5 1.23457e+06");
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
