#include "backend/backend.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"

namespace lockstep::backend {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(BackendTable, OfThisBuildAreComplete) {
  EXPECT_NO_THROW(complete(cpu()));
  for (const Backend* backend : {&cpu(), onednn(), cuda()})
    if (backend) {
      EXPECT_NO_THROW(complete(*backend));
    }
}

TEST(BackendTable, NamesTheLibraryOfGpuProducts) {
  if (!cuda()) GTEST_SKIP() << "no code for GPUs in this build";
  const auto found = components();
  const auto library = std::ranges::find(found, "cuBLASLt", &Component::name);
  ASSERT_NE(library, found.end());
  EXPECT_NE(library->version.find('.'), std::string::npos) << library->version;
}

TEST(BackendTable, NamesTheFamiliesThatABackendLacks) {
  Backend partial = cpu();
  partial.name = "partial";
  partial.embedding.backward = nullptr;  // one entry of a table
  partial.pooling = {};
  partial.attention = {};
  try {
    complete(partial);
    FAIL() << "a table with gaps was accepted";
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("\"partial\""), HasSubstr("embedding, pooling, attention")));
  }
}

}  // namespace
}  // namespace lockstep::backend
