% Matrices, functions called by functions, and errors, which are C++ exceptions.
function n = work (rounds)
  n = 0;
  for i = 1:rounds
    a = rand (20) + 20 * eye (20);
    n += norm (a \ ones (20, 1)) + sum (abs (eig (a))) + numel (svd (a));
    c = cellfun (@(x) [x, sprintf("%d", i)], {"a", "b", "c"}, "UniformOutput", false);
    n += sum (arrayfun (@(x) descend (x), 1:5));
    s.(c{1}) = regexprep (strjoin (c, ","), "(a)(\\d)", "$2$1");
    n += numel (strsplit (s.(c{1}), ",")) + numel (num2str (a(1, :)));
    try
      cellfun (@(x) error ("work:bottom", "bottom %d", x), {1, 2});
    catch e
      n += numel (e.stack);
    end_try_catch
    try
      undefined_function (a);
    catch
      n += numel (lasterr ());
    end_try_catch
    try
      a * ones (3);
    catch e
      unwind_protect
        n += numel (e.message);
      unwind_protect_cleanup
        clear e
      end_unwind_protect
    end_try_catch
    m = containers.Map ({"x", "y"}, {i, a});
    n += m.Count + numel (evalc ("disp (a(1))")) + quad (@(x) x .^ 2, 0, 1);
  endfor
endfunction

function n = descend (depth)
  if depth == 0
    n = 1;
  else
    n = 1 + feval (@descend, depth - 1);
  endif
endfunction
