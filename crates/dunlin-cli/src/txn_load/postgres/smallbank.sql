-- SmallBank. Pages have room for the next version of each row, so that no index changes with it.
CREATE TABLE savings (id int8 PRIMARY KEY, balance int8 NOT NULL) WITH (fillfactor = 50);
CREATE TABLE checking (id int8 PRIMARY KEY, balance int8 NOT NULL) WITH (fillfactor = 50);

CREATE FUNCTION amalgamate(a int8, b int8) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE total int8;
BEGIN
    SELECT savings.balance + checking.balance INTO total FROM savings JOIN checking USING (id) WHERE id = a;
    UPDATE savings SET balance = 0 WHERE id = a;
    UPDATE checking SET balance = 0 WHERE id = a;
    UPDATE checking SET balance = balance + total WHERE id = b;
    RETURN true;
END $$;

CREATE FUNCTION send_payment(a int8, b int8, amount int8) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
    UPDATE checking SET balance = balance - amount WHERE id = a AND balance >= amount;
    IF NOT FOUND THEN RETURN false; END IF;
    UPDATE checking SET balance = balance + amount WHERE id = b;
    RETURN true;
END $$;

CREATE FUNCTION write_check(a int8, amount int8) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE total int8;
BEGIN
    SELECT savings.balance + checking.balance INTO total FROM savings JOIN checking USING (id) WHERE id = a;
    UPDATE checking SET balance = balance - amount - (total < amount)::int WHERE id = a;
    RETURN true;
END $$;
