#include "lockstep/checkpoint/values.hpp"

#include "io/in_quotes.hpp"

namespace lockstep::checkpoint {

const Value& Values::at(std::string_view name) const {
  const auto found = values_.find(name);
  LOCKSTEP_CHECK(found != values_.end(), InvalidArgument, "there is no value ",
                 io::in_quotes(std::string(name)));
  return found->second;
}

void Values::throw_other_kind(std::string_view name) {
  LOCKSTEP_THROW(InvalidArgument, "value ", io::in_quotes(std::string(name)),
                 " is of another kind, or none that the type asked for has");
}

}  // namespace lockstep::checkpoint
