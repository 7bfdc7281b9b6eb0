# Finds cfi2sframe, and gives linked targets an .sframe section as a step after the
# linker. CMake 3.13 or later, for every generator and configuration.
#
#   find_package(cfi2sframe [VERSION] REQUIRED)
#   cfi2sframe_target(TARGET... [FLAGS FLAG...])
#
# The targets are executables, shared libraries and modules of the current folder.
# FLAGS are given to cfi2sframe, such as --format 2. Static libraries are skipped with a
# message; other kinds of targets are errors.
#
#   cfi2sframe_all()
#
# has all targets that are made after it, in this folder and those below, linked by way of
# cfi2sframe, instead. Its flags are in the environment, as CFI2SFRAME_FLAGS.
#
# cfi2sframe_EXECUTABLE  the program; may be given, as a cache variable
# cfi2sframe_VERSION     its version; 0.0.0 is a build without one
# cfi2sframe::cfi2sframe the program as an imported target

find_program(cfi2sframe_EXECUTABLE cfi2sframe DOC "adds .sframe sections to ELF files" NO_CMAKE_FIND_ROOT_PATH)
mark_as_advanced(cfi2sframe_EXECUTABLE)

unset(cfi2sframe_VERSION)
if(cfi2sframe_EXECUTABLE)
	execute_process(COMMAND "${cfi2sframe_EXECUTABLE}" --version OUTPUT_VARIABLE _cfi2sframe_output ERROR_VARIABLE
		_cfi2sframe_error RESULT_VARIABLE _cfi2sframe_result)
	if(_cfi2sframe_result EQUAL 0 AND _cfi2sframe_output MATCHES "^cfi2sframe v?([0-9]+\\.[0-9.]*[0-9])")
		set(cfi2sframe_VERSION "${CMAKE_MATCH_1}")
	elseif(_cfi2sframe_result EQUAL 0 AND _cfi2sframe_output MATCHES "^cfi2sframe ")
		set(cfi2sframe_VERSION 0.0.0)
	else()
		message(WARNING "cfi2sframe_EXECUTABLE: ${cfi2sframe_EXECUTABLE} --version does not print a version "
			"(${_cfi2sframe_result}): ${_cfi2sframe_output}${_cfi2sframe_error}")
	endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(cfi2sframe REQUIRED_VARS cfi2sframe_EXECUTABLE cfi2sframe_VERSION
	VERSION_VAR cfi2sframe_VERSION)

if(cfi2sframe_FOUND AND NOT TARGET cfi2sframe::cfi2sframe)
	add_executable(cfi2sframe::cfi2sframe IMPORTED)
	set_target_properties(cfi2sframe::cfi2sframe PROPERTIES IMPORTED_LOCATION "${cfi2sframe_EXECUTABLE}")
endif()

# Sets OUT to whether this build can have .sframe sections, and says so if not.
function(_cfi2sframe_usable OUT)
	set(${OUT} FALSE PARENT_SCOPE)
	if(NOT cfi2sframe_FOUND)
		message(STATUS "cfi2sframe was not found: no .sframe sections")
	elseif(CMAKE_EXECUTABLE_FORMAT AND NOT CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF")
		message(STATUS "cfi2sframe is for ELF, not ${CMAKE_EXECUTABLE_FORMAT}: no .sframe sections")
	else()
		set(${OUT} TRUE PARENT_SCOPE)
	endif()
endfunction()

function(cfi2sframe_target)
	cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FLAGS")
	if(NOT arg_UNPARSED_ARGUMENTS)
		message(FATAL_ERROR "cfi2sframe_target: no target is named")
	endif()
	_cfi2sframe_usable(usable)
	foreach(target IN LISTS arg_UNPARSED_ARGUMENTS)
		if(NOT TARGET "${target}")
			message(FATAL_ERROR "cfi2sframe_target: ${target} is no target")
		endif()
		get_target_property(type "${target}" TYPE)
		get_target_property(imported "${target}" IMPORTED)
		get_target_property(aliased "${target}" ALIASED_TARGET)
		if(imported)
			message(FATAL_ERROR "cfi2sframe_target: ${target} is imported; a target that is built here was expected")
		elseif(aliased)
			message(FATAL_ERROR "cfi2sframe_target: ${target} is an alias; ${aliased} was expected")
		elseif(type STREQUAL "STATIC_LIBRARY")
			message(STATUS "cfi2sframe_target: ${target} is a static library, and skipped: what is linked with it gets .sframe")
		elseif(NOT type MATCHES "^(EXECUTABLE|SHARED_LIBRARY|MODULE_LIBRARY)$")
			message(FATAL_ERROR "cfi2sframe_target: ${target} is of type ${type}; an executable, a shared library or a "
				"module was expected")
		elseif(usable)
			# The dates stay, so that no build tool takes the file for newer than what was made of it.
			add_custom_command(TARGET "${target}" POST_BUILD
				COMMAND "${cfi2sframe_EXECUTABLE}" -q -p --update --skip-unsupported --no-sync --in-place
				${arg_FLAGS} "$<TARGET_FILE:${target}>"
				COMMENT "" VERBATIM)
			# A new cfi2sframe may know more.
			set_property(TARGET "${target}" APPEND PROPERTY LINK_DEPENDS "${cfi2sframe_EXECUTABLE}")
		endif()
	endforeach()
endfunction()

# A macro, as add_link_options is for the folder that it is called from.
macro(cfi2sframe_all)
	_cfi2sframe_usable(_cfi2sframe_is_usable)
	if(_cfi2sframe_is_usable)
		execute_process(COMMAND "${cfi2sframe_EXECUTABLE}" ld --print-dir OUTPUT_VARIABLE cfi2sframe_LINKER_DIR
			RESULT_VARIABLE _cfi2sframe_result OUTPUT_STRIP_TRAILING_WHITESPACE)
		if(NOT _cfi2sframe_result EQUAL 0)
			message(FATAL_ERROR "cfi2sframe_all: ${cfi2sframe_EXECUTABLE} ld --print-dir failed: ${_cfi2sframe_result}")
		endif()
		add_link_options("-B${cfi2sframe_LINKER_DIR}")
	endif()
endmacro()
